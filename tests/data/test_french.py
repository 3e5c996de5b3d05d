"""French sentences and their translations: what the grammar writes, which words it aligns, and what it never writes."""

import pytest

from regard.data.french import FIGURE, French, four_words, pair_of
from regard.data.french_grammar import Grammar, Phrase, phrase
from regard.data.french_words import DOCUMENTS, ON_DOCUMENTS, REGIONS
from regard.errors import UserError

SMALL = French(train=4000, valid=100, test=100)


@pytest.fixture(scope="module")
def corpus():
    return SMALL.load()


def said(source: Phrase) -> list[str]:
    pair = pair_of(source)
    return [pair.source, pair.target]


def links(source: Phrase) -> set[tuple[str, str]]:
    pair = pair_of(source)
    french, english = pair.source.split(), pair.target.split()
    return {(french[i], english[j]) for i, j in pair.links or ()}


def test_adjectives_after_the_noun_are_in_reverse_order():
    found = phrase("zone", "Area").before(phrase("économique", "Economic")).before(phrase("européenne", "European"))
    found = phrase("la", "the") + found
    assert said(found) == ["La zone économique européenne .", "The European Economic Area ."]
    assert links(found) == {
        ("La", "The"),
        ("zone", "Area"),
        ("économique", "Economic"),
        ("européenne", "European"),
        (".", "."),
    }


def test_words_are_joined_as_french_writes_them_and_keep_their_links():
    found = phrase(
        "le/1 avis/2 de/3 le/0 Portugal/4 ne/6 a/5 pas/6 été/5", "the/1 opinion/2 of/3 Portugal/4 was/5 not/6"
    )
    assert said(found) == ["L'avis du Portugal n'a pas été .", "The opinion of Portugal was not ."]
    assert {("L'avis", "The"), ("L'avis", "opinion"), ("du", "of"), ("n'a", "was"), ("n'a", "not")} <= links(found)
    assert said(phrase("les prix de le/0 été/2", "x"))[0] == "Les prix de l'été ."
    assert said(phrase("à les", "to"))[0] == "Aux ."
    assert said(phrase("il dit que Anna", "x"))[0] == "Il dit qu'Anna ."


def test_english_articles_and_endings():
    assert said(phrase("x", "a agreement"))[1] == "An agreement ."
    assert said(phrase("x", "a European union"))[1] == "A European union ."
    assert said(phrase("x", "a university"))[1] == "A university ."
    assert said(phrase("x", "Marie 's letter"))[1] == "Marie's letter ."


def test_forms():
    european = next(one for one in REGIONS if one.english == "European")
    assert european.forms == ("européen", "européenne", "européens", "européennes")
    assert {noun.french: noun.plural for noun in DOCUMENTS}["loi"] == "lois"
    sign, reject, publish = (
        next(one for one in ON_DOCUMENTS if one.base == base) for base in ("sign", "reject", "publish")
    )
    assert (sign.present, sign.participle.forms, sign.past) == (
        ("signe", "signent"),
        ("signé", "signée", "signés", "signées"),
        "signed",
    )
    assert (reject.present, reject.participle.english) == (("rejette", "rejettent"), "rejected")
    assert (sign.third, publish.third) == ("signs", "publishes")


def test_no_four_words_of_the_figure_are_in_the_data(corpus):
    """The whole corpus of the recipe, as the shipped translator has read it, is tested by the slow test."""
    check_kept_out(corpus)
    # The smaller parts of its phrases are there, so the filter does not empty the corpus.
    texts = " ".join(pair.source for pair in corpus.train)
    assert all(part in texts for part in ("zone", "économique", "européenne", "en août", "signé", "L'accord"))


@pytest.mark.slow
def test_no_four_words_of_the_figure_are_in_all_of_the_data():
    check_kept_out(French().load())


def check_kept_out(corpus):
    for side, text in zip(("source", "target"), FIGURE):
        never = four_words(text)
        assert len(never) >= 10
        for pair in (*corpus.train, *corpus.valid, *corpus.test):
            written = getattr(pair, side)
            assert not never & four_words(written), written
            assert written.rstrip(" .") != text.rstrip(" .")


class Directed(Grammar):
    """The grammar, with its choices made here instead of drawn."""

    def __init__(self, answers: str, words: set[str]) -> None:
        super().__init__(1, "train")
        self.answers, self.words = iter(answers), words

    def likely(self, probability: float) -> bool:
        answer = next(self.answers) == "y"
        assert probability > 0 or not answer
        return answer

    def pick(self, values):
        return next(value for value in values if {*names(value)} & self.words)


def names(value) -> tuple[str, ...]:
    """What a choice is called."""
    if isinstance(value, tuple):
        return value
    found = (getattr(value, name, "") for name in ("__name__", "french", "infinitive"))
    return (str(value), *found, *getattr(value, "forms", ()))


def test_the_sentence_of_the_figure_is_in_the_language_of_the_grammar():
    """The grammar writes it, if its choices are these: each of them has a probability."""
    document = "y" + "n" + "nnnnnn" + "y" + "y"  # a document, not somebody's, no plural, no adjective; l'accord sur
    area = "y" + "n" + "yynn" + "n" + "n" + "y" + "n"  # an institution, with a kind and a region, no capital; la zone
    rest = "ny" + "n" + "n" + "y" + "y"  # not denied, in the past; by nobody, nowhere; in a month of a year
    words = {"_passive", "accord", "zone", "économique", "européen", "signer", "42", "août", "month"}
    grammar = Directed("n" + document + area + rest + "n", words)  # no other time, no report
    assert tuple(said(grammar.statement())) == FIGURE
    assert next(grammar.answers, None) is None


def test_parts_share_no_sentence_and_are_repeatable(corpus):
    parts = [{pair.source.rstrip(" .") for pair in part} for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in parts] == [4000, 100, 100]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert SMALL.load().test == corpus.test
    assert French(train=10, valid=10, test=10, seed=2).load().train != corpus.train[:10]


def test_every_word_is_aligned_but_articles_that_one_language_has(corpus):
    for pair in corpus.train[:500]:
        assert pair.unit == "word"
        french, english = pair.source.split(), pair.target.split()
        assert all(0 <= i < len(french) and 0 <= j < len(english) for i, j in pair.links)
        free = {english[j] for j in range(len(english)) if j not in {b for _, b in pair.links}}
        assert free <= {"the", "of", "."}, pair  # in the spring of 1990; a stop that the French text has not
        free = {french[i].lower() for i in range(len(french)) if i not in {a for a, _ in pair.links}}
        assert free <= {"le", "la", "les", "de", "des"}, pair


def test_settings_that_do_not_fit():
    with pytest.raises(UserError, match=r"data\.train=0"):
        French(train=0)
    with pytest.raises(UserError, match=r"data\.vocab=5"):
        French(vocab=5)
