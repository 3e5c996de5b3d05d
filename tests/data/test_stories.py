"""Stories: names, things and places come back, and pronouns and numbers agree."""

import re

import pytest

from regard.data.stories import BOYS, GIRLS, MANY, ONE, Stories
from regard.errors import UserError

SMALL = Stories(train=3000, valid=100, test=100)


@pytest.fixture(scope="module")
def corpus():
    return SMALL.load()


def test_parts_share_no_story_and_are_repeatable(corpus):
    parts = [{story.text for story in part} for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in parts] == [3000, 100, 100]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert SMALL.load().test == corpus.test


def test_a_story_has_two_people_and_is_written_whole(corpus):
    for story in corpus.train:
        people = {name for name in (*GIRLS, *BOYS) if re.search(rf"\b{name}\b", story.text)}
        assert len(people) == 2, story
        assert story.text[0].isupper()
        assert re.search(r"(\.|said \w+\.)$", story.text)
        assert "  " not in story.text
        assert not re.search(r"[{}]", story.text)
        assert story.text.count('"') % 2 == 0


def test_pronouns_are_those_of_the_person(corpus):
    for story in corpus.train:
        for name, pronoun in re.findall(r"(\w+) (?:wanted to give|wanted to help) (him|her)\b", story.text):
            others = [one for one in (*GIRLS, *BOYS) if one != name and re.search(rf"\b{one}\b", story.text)]
            assert pronoun == ("her" if others[0] in GIRLS else "him"), story


def test_things_agree_in_number(corpus):
    found = set()
    for story in corpus.train:
        for verb, noun in re.findall(r"Where (is|are) the (\w+)\?", story.text):
            found.add(verb)
            assert noun in (MANY if verb == "are" else ONE), story
        for noun, verb in re.findall(r"The (\w+) that \w+ had carried to the \w+ (was|were)", story.text):
            found.add(verb)
            assert noun in (MANY if verb == "were" else ONE), story
    assert found == {"is", "are", "was", "were"}


def test_what_is_hidden_is_found_where_it_was_put(corpus):
    told = [story.text for story in corpus.train if "found" in story.text and " put " in story.text]
    assert len(told) > 200
    for text in told:
        box = re.search(r"put (?:it|them) in the (\w+)", text)[1]
        opened = re.search(r"opened the (\w+) and took the (\w+) (\w+)", text)
        assert opened[1] == box
        assert f"{opened[2]} {opened[3]} in the" in text  # the thing, with its colour, in the first sentence


def test_too_many_stories_are_refused():
    with pytest.raises(UserError, match=r"data\.train=0"):
        Stories(train=0)
