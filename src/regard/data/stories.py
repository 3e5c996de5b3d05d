"""Short stories from a story grammar: a text for language models in which later words depend on much earlier ones.

A story follows what happens: who has a thing, where it is and how somebody feels. So a name comes back as a pronoun of
its gender, a thing comes back with its colour and its number (it, them; was, were), and what somebody says in quotes is
true at that place of the story. A model that has only the last word cannot know these words; one that attends can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from regard.data.example import Text, Tokens
from regard.data.files import hash_text
from regard.data.made_texts import PARTS, Writer, capital
from regard.data.synthetic import Drawn
from regard.errors import UserError

FOLDS = 20  # the folds that stories are dealt to; one each is for validation and test
GIRLS = ("Anna", "Emma", "Julia", "Clara", "Lena", "Sara", "Nora", "Ida", "Maya", "Rosa")
BOYS = ("Tom", "Paul", "Max", "Leo", "Ben", "Oscar", "Hugo", "Felix", "Noah", "Adam")
COLOURS = ("red", "green", "blue", "yellow", "white", "black", "brown", "grey")
ONE = ("ball", "book", "kite", "hat", "lamp", "drum", "boat", "cup", "coat", "key", "ring", "flute", "map", "scarf")
MANY = ("shoes", "gloves", "pencils", "boots", "cards", "shells", "stamps", "marbles", "keys", "ribbons")
INSIDE = ("basket", "box", "drawer", "bag", "cupboard", "chest")
ROOMS = ("kitchen", "garden", "attic", "cellar", "hall", "barn")
PLACES = ("park", "forest", "market", "station", "library", "museum", "harbour", "village", "school", "castle")
SPOTS = (
    "under the bench",
    "behind the door",
    "under the table",
    "behind the wall",
    "under the bridge",
    "near the well",
)
ANIMALS = ("dog", "cat", "rabbit", "parrot", "pony", "goat", "duck", "mouse")
FOODS = ("bread", "cheese", "soup", "rice", "cake", "milk", "honey", "corn")
WEATHER = (("rained", "wet"), ("snowed", "cold"), ("stormed", "tired"))
GOOD, BAD = ("happy", "glad", "proud", "delighted"), ("sad", "angry", "worried", "upset")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SEASONS = ("spring", "summer", "autumn", "winter")


@dataclass(frozen=True)
class Person:
    """Somebody in a story, with the pronouns."""

    name: str
    girl: bool

    @property
    def he(self) -> str:
        return "she" if self.girl else "he"

    @property
    def him(self) -> str:
        return "her" if self.girl else "him"

    @property
    def his(self) -> str:
        return "her" if self.girl else "his"


@dataclass(frozen=True)
class Thing:
    """A thing in a story, or several of a kind."""

    colour: str
    noun: str
    many: bool

    @property
    def a(self) -> str:
        return f"some {self.colour} {self.noun}" if self.many else f"a {self.colour} {self.noun}"

    @property
    def described(self) -> str:
        return f"{self.colour} {self.noun}"

    @property
    def it(self) -> str:
        return "them" if self.many else "it"

    @property
    def it_is(self) -> str:
        return "they are" if self.many else "it is"

    @property
    def was(self) -> str:
        return "were" if self.many else "was"

    @property
    def is_(self) -> str:
        return "are" if self.many else "is"


class Storyteller(Writer):
    """Draws the stories of one part of the data."""

    def story(self) -> str:
        plot = self.pick((self._hidden, self._gift, self._lost_animal, self._exchange, self._walk, self._meal))
        return " ".join(plot())

    def _people(self) -> tuple[Person, Person]:
        """Two people of different names; most often a girl and a boy."""
        girl, boy = Person(self.pick(GIRLS), True), Person(self.pick(BOYS), False)
        if self.likely(0.2):
            first = girl if self.likely(0.5) else boy
            names = [name for name in (GIRLS if first.girl else BOYS) if name != first.name]
            return first, Person(self.pick(names), first.girl)
        return (girl, boy) if self.likely(0.5) else (boy, girl)

    def _thing(self) -> Thing:
        many = self.likely(0.35)
        return Thing(self.pick(COLOURS), self.pick(MANY if many else ONE), many)

    def _opening(self) -> str:
        """When it was, with a comma, or nothing."""
        when = (f"On {self.pick(DAYS)}, ", f"One day in {self.pick(SEASONS)}, ", "One morning, ", "Yesterday, ")
        return self.pick(when) if self.likely(0.6) else ""

    def _hidden(self) -> list[str]:
        """Somebody puts a thing somewhere, and another person looks for it."""
        one, two = self._people()
        thing, (place, there), (box, other) = self._thing(), self.shuffled(PLACES)[:2], self.shuffled(INSIDE)[:2]
        room = self.pick(ROOMS)
        story = [f"{self._opening()}{one.name} found {thing.a} in the {place}."]
        story += [f"{capital(one.he)} put {thing.it} in the {box} in the {room} and went to the {there}."]
        if self.likely(0.5):
            story += [f"{two.name} looked for the {thing.noun} in the {other}, but the {other} was empty."]
        ask = self.pick((f'"Where {thing.is_} the {thing.noun}?"', f'"Where did you put the {thing.noun}?"'))
        story += [f"{two.name} asked {one.name}, {ask}"]
        answer = f'"{capital(thing.it_is)} in the {box}," said {one.name}.'
        story += [answer if self.likely(0.5) else f'{one.name} said, "Look in the {box} in the {room}."']
        story += [f"{two.name} opened the {box} and took the {thing.described}."]
        if self.likely(0.6):
            story += [f"Now the {box} was empty, and {two.name} was {self.pick(GOOD)}."]
        return story

    def _gift(self) -> list[str]:
        """Somebody has a birthday, or is sad, and gets a thing."""
        one, two = self._people()
        thing, feeling, place = self._thing(), self.pick(BAD), self.pick(PLACES)
        if self.likely(0.5):
            story = [f"{self._opening()}{two.name} was {feeling} because {two.he} had lost {two.his} {thing.noun}."]
            story += [f"{one.name} saw that {two.name} was {feeling} and went to the {place}."]
        else:
            story = [f"It was the birthday of {two.name}, and {one.name} wanted to give {two.him} a present."]
            story += [f"{capital(one.he)} went to the {place}."]
        story += [f"There {one.he} bought {thing.a} for {two.name}."]
        story += [f'"The {thing.noun} {thing.is_} for you, {two.name}," said {one.name}.']
        story += [f'"Thank you, {one.name}!" said {two.name}.']
        ends = (
            f"{two.name} was {self.pick(GOOD)} and showed the {thing.described} to {two.his} mother.",
            f"From that day on, {two.name} took the {thing.described} everywhere.",
            f"{capital(two.he)} put the {thing.described} in {two.his} {self.pick(INSIDE)}.",
        )
        return [*story, self.pick(ends)]

    def _lost_animal(self) -> list[str]:
        """An animal runs away; it is found in the last of the places."""
        one, two = self._people()
        animal, colour, food = self.pick(ANIMALS), self.pick(COLOURS), self.pick(FOODS)
        places, spot, feeling = self.shuffled(PLACES)[:2], self.pick(SPOTS), self.pick(BAD)
        story = [f"{one.name} had a {colour} {animal}.", f"{self._opening()}the {animal} ran away."]
        story[1] = capital(story[1])
        story += [f"{one.name} was {feeling}, and {two.name} wanted to help {one.him}."]
        story += [f"First they looked for the {animal} in the {places[0]}, but it was not there."]
        story += [f"Then they went to the {places[1]}, and {two.name} saw the {colour} {animal} {spot}."]
        if self.likely(0.6):
            story += [f'"Your {animal} is {spot}, {one.name}!" {two.he} called.']
        story += [f"The {animal} was hungry, so {one.name} gave it some {food}."]
        story += [f"It ate the {food}, and {one.name} was not {feeling} any more."]
        return story

    def _exchange(self) -> list[str]:
        """Two people exchange what they have."""
        one, two = self._people()
        first, second = self._thing(), self._thing()
        story = [f"{one.name} had {first.a}, and {two.name} had {second.a}."]
        story += [f"{self._opening()}they met in the {self.pick(PLACES)}."]
        story[1] = capital(story[1])
        if first.noun == second.noun:
            return [*story, f'"We both have {first.noun if first.many else "a " + first.noun}," said {one.name}.']
        story += [f'"I like your {second.noun}," said {one.name}. "Do you want my {first.noun}?"']
        if self.likely(0.75):
            story += [f'"Yes," said {two.name}, and {two.he} gave {one.name} the {second.described}.']
            story += [f"Now {one.name} had the {second.noun}, and {two.name} had the {first.described}."]
            story += [f"Both were {self.pick(GOOD)}."]
        else:
            story += [f'"No," said {two.name}, and {two.he} kept the {second.described}.']
            story += [f"{one.name} was {self.pick(BAD)} and went home with {one.his} {first.noun}."]
        return story

    def _walk(self) -> list[str]:
        """A walk in bad weather, for which somebody has a thing."""
        one, two = self._people()
        (weather, feeling), thing, place = self.pick(WEATHER), self._thing(), self.pick(PLACES)
        story = [f"{self._opening()}{one.name} and {two.name} walked to the {place}."]
        story += [f"{one.name} carried {thing.a}, but {two.name} carried nothing."]
        story += [f"In the {place} it {weather}, and {two.name} was {feeling}."]
        story += [f'"Take my {thing.noun}," said {one.name}, and {one.he} gave {two.him} the {thing.described}.']
        story += [f"When they left the {place}, {two.name} gave {thing.it} back."]
        story += [f"The {thing.noun} that {one.name} had carried to the {place} {thing.was} {feeling} too."]
        if feeling == "tired":
            story[-1] = f"At home, {two.name} was still {feeling}, but {one.name} was {self.pick(GOOD)}."
        return story

    def _meal(self) -> list[str]:
        """Somebody cooks, and another person guesses what it is."""
        one, two = self._people()
        food, more = self.shuffled(FOODS)[:2]
        room, day = self.pick(ROOMS), self.pick(DAYS)
        story = [f"On {day}, {one.name} brought {food} and {more} into the {room}."]
        story += [f"{two.name} was hungry and came into the {room}, too."]
        story += [f'"What do you have?" {two.he} asked.', f'"I have {food} and {more}," said {one.name}.']
        chosen, left = (food, more) if self.likely(0.5) else (more, food)
        story += [f"{two.name} did not like {left}, so {two.he} ate the {chosen}."]
        story += [f"{one.name} ate the {left}, and then there was neither {food} nor {more} in the {room}."]
        story += [f"It was a good {day}."]
        return story


@dataclass(frozen=True)
class Stories(Drawn):
    """Short stories from a story grammar: names, things and places come back later in the story."""

    tasks: ClassVar[tuple[str, ...]] = ("language", "two-way language", "masked", "replaced", "infill", "context")

    train: int = 40_000  # number of training stories; all stories of all parts differ
    valid: int = 500  # number of validation stories
    test: int = 1000  # number of test stories
    seed: int = 1  # random seed of the stories
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 1000  # the largest size of the vocabulary

    def draw(self, part: int, count: int) -> Iterator[Text]:
        teller, seen = Storyteller(self.seed, PARTS[part]), set[str]()
        for _ in range(40 * count + 10_000):
            if len(seen) == count:
                return
            story = teller.story()
            fold = hash_text(story) % FOLDS
            if (fold == part if part else fold not in (1, 2)) and story not in seen:
                seen.add(story)
                yield Text(story)
        raise UserError(f"data.{PARTS[part]}={count}: only {len(seen)} different stories were found; give fewer.")
