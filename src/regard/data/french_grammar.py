"""The grammar of the French–English corpus: each rule makes a phrase in both languages at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.data import french_words as words
from regard.data.french_words import VOWELS, Noun, Verb
from regard.data.made_texts import Writer, capital

Marked = tuple[tuple[str, int], ...]  # words, each with the number of what it says; 0: it says nothing of its own


@dataclass(frozen=True)
class Phrase:
    """A phrase in both languages: words of the same number are aligned."""

    french: Marked
    english: Marked

    def __add__(self, other: Phrase) -> Phrase:
        more = self._shifted(other)
        return Phrase(self.french + more.french, self.english + more.english)

    def before(self, other: Phrase) -> Phrase:
        """Both, this one first in French and last in English."""
        more = self._shifted(other)
        return Phrase(self.french + more.french, more.english + self.english)

    def _shifted(self, other: Phrase) -> Phrase:
        by = max((number for _, number in self.french + self.english), default=0)
        french, english = (tuple((w, n and n + by) for w, n in side) for side in (other.french, other.english))
        return Phrase(french, english)


def phrase(french: str, english: str) -> Phrase:
    """A phrase of words with their numbers: "ne/2 a/1 pas/2 été/1", "was/1 not/2"; a word without one has 1."""
    sides = []
    for text in (french, english):
        marked = (word.partition("/") for word in text.split())
        sides.append(tuple((word, int(number or 1)) for word, _, number in marked))
    return Phrase(*sides)


EMPTY = phrase("", "")


class Nominal(NamedTuple):
    """A noun phrase with what agrees with it."""

    phrase: Phrase
    feminine: bool
    plural: bool


class Grammar(Writer):
    """Draws sentences of one part of the data."""

    def statement(self) -> Phrase:
        """A sentence without its end."""
        opening = self._time() + phrase(",", ",") if self.likely(0.12) else EMPTY
        self._dated = opening is not EMPTY  # so that the clause has no other time
        clause = self._clause()
        if opening is EMPTY and self.likely(0.06):
            verb = self.pick((("pense", "thinks"), ("dit", "says"), ("croit", "believes"), ("sait", "knows")))
            return self._person(coordinated=False).phrase + phrase(*verb) + phrase("que", "that") + clause
        return opening + clause

    def _clause(self) -> Phrase:
        kinds = (self._passive, self._passive, self._active, self._active, self._copula, self._motion, self._place)
        return self.pick(kinds)()

    def _passive(self) -> Phrase:
        """The agreement was signed by the minister in August."""
        kind = self.likely(0.75)
        subject = self._document() if kind else self._thing()
        verb = self.pick(words.ON_DOCUMENTS if kind else words.ON_THINGS)
        participle = verb.participle.agreeing(subject.feminine, subject.plural)
        found = subject.phrase + self._auxiliary(subject.plural) + phrase(participle, verb.participle.english)
        if self.likely(0.3):
            found += phrase("par", "by") + self._agent().phrase
        return found + self._circumstances()

    def _auxiliary(self, plural: bool) -> Phrase:
        """The auxiliary verbs of the passive, with a negation or none."""
        have, was = ("ont", "were") if plural else ("a", "was")
        negation = self._negation()
        if negation and self.likely(0.8):
            pas, no = negation
            return phrase(f"ne/2 {have}/1 {pas}/2 été/1", f"{was}/1 {no}/2")
        if self.likely(0.75):
            return phrase(f"{have} été", was)
        if self.likely(0.5):
            return phrase("seront" if plural else "sera", "will be")
        return phrase(f"{'doivent' if plural else 'doit'}/1 être/2", "must/1 be/2")

    def _negation(self) -> tuple[str, str] | None:
        if not self.likely(0.25):
            return None
        return ("jamais", "never") if self.likely(0.25) else ("pas", "not")

    def _active(self) -> Phrase:
        """The minister signed the agreement."""
        subject, kind = self._agent(), self.pick((0, 0, 1, 2))
        verb = self.pick((words.ON_DOCUMENTS, words.ON_THINGS, words.ON_PEOPLE)[kind])
        if self.likely(0.1):
            return subject.phrase + self._with_pronoun(verb, subject.plural) + self._circumstances()
        made = (self._document, self._thing, self._person)[kind]()
        return subject.phrase + self._verb(verb, subject.plural) + made.phrase + self._circumstances()

    def _verb(self, verb: Verb, plural: bool) -> Phrase:
        """A verb in one of its tenses, with a negation or none."""
        have, tense, negation = (
            "ont" if plural else "a",
            self.pick(("past", "past", "present", "modal")),
            self._negation(),
        )
        participle = verb.participle.forms[0]
        if tense == "past":
            if negation is None:
                return phrase(f"{have} {participle}", verb.past)
            pas, no = negation
            if no == "never":
                return phrase(f"ne/1 {have}/2 jamais/1 {participle}/2", f"never/1 {verb.past}/2")
            return phrase(f"ne/1 {have}/2 {pas}/1 {participle}/2", f"did/2 not/1 {verb.base}/2")
        if tense == "present":
            french, english = verb.present[plural], verb.base if plural else verb.third
            if negation is None:
                return phrase(french, english)
            pas, no = negation
            if no == "never":
                return phrase(f"ne/1 {french}/2 jamais/1", f"never/1 {english}/2")
            return phrase(f"ne/1 {french}/2 pas/1", f"{'do' if plural else 'does'}/2 not/1 {verb.base}/2")
        will = (("va", "vont", "will"), ("doit", "doivent", "must"), ("peut", "peuvent", "can"))
        one, many, english = self.pick(will)
        return phrase(f"{many if plural else one}/1 {verb.infinitive}/2", f"{english}/1 {verb.base}/2")

    def _with_pronoun(self, verb: Verb, plural: bool) -> Phrase:
        """Signed it: the pronoun is before the verb in French."""
        have, many = "ont" if plural else "a", self.likely(0.4)
        participle, pronoun = verb.participle.agreeing(False, many), "les" if many else "le"
        return phrase(f"{pronoun}/1 {have}/2 {participle}/2", f"{verb.past}/2 {'them' if many else 'it'}/1")

    def _copula(self) -> Phrase:
        """The agreement is not very important."""
        person = self.likely(0.4)
        subject = self._person() if person else self.pick((self._document, self._thing, self._institution))()
        quality = self.pick(words.MOODS if person else words.QUALITIES)
        past = self.likely(0.4)
        french = ("étaient" if past else "sont") if subject.plural else ("était" if past else "est")
        english = ("were" if past else "are") if subject.plural else ("was" if past else "is")
        negation = self._negation()
        found = phrase(french, english)
        if negation:
            found = phrase(f"ne/2 {french}/1 {negation[0]}/2", f"{english}/1 {negation[1]}/2")
        if self.likely(0.25):
            found += phrase(*self.pick((("très", "very"), ("trop", "too"), ("aussi", "also"))))
        found += phrase(quality.agreeing(subject.feminine, subject.plural), quality.english)
        return subject.phrase + found + (self._time() if past and not self._dated and self.likely(0.3) else EMPTY)

    def _motion(self) -> Phrase:
        """Marie arrived in Paris in the spring; Paul was born in Rome."""
        subject, negation = self._person(), self._negation()
        to_be = "sont" if subject.plural else "est"
        born = self.likely(0.3)
        verb = self.pick(words.MOTION)
        ending = "e" * subject.feminine + "s" * subject.plural
        participle = "né" + ending if born else verb.participle.agreeing(subject.feminine, subject.plural)
        was = "were" if subject.plural else "was"
        if born and negation:
            made = phrase(f"ne/2 {to_be}/1 {negation[0]}/2 {participle}/3", f"{was}/1 {negation[1]}/2 born/3")
        elif born:
            made = phrase(f"{to_be}/1 {participle}/2", f"{was}/1 born/2")
        elif negation and negation[1] == "not":
            made = phrase(f"ne/1 {to_be}/2 pas/1 {participle}/2", f"did/2 not/1 {verb.base}/2")
        else:
            made = phrase(f"{to_be} {participle}", verb.past)
        return subject.phrase + made + self._circumstances(0.8)

    def _place(self) -> Phrase:
        """The European bank is in Rome."""
        subject = self._thing() if self.likely(0.4) else self._institution()
        french, english = ("trouvent", "are") if subject.plural else ("trouve", "is")
        if self.likely(0.2):
            return subject.phrase + phrase(f"ne/2 se/1 {french}/1 pas/2", f"{english}/1 not/2") + self._where()
        return subject.phrase + phrase(f"se {french}", english) + self._where()

    def _circumstances(self, share: float = 0.25) -> Phrase:
        found = self._where() if self.likely(share) else EMPTY
        return found + (self._time() if not self._dated and self.likely(0.55) else EMPTY)

    def _where(self) -> Phrase:
        if self.likely(0.6):
            city = self.pick(words.CITIES)
            return phrase(f"à/1 {city.french}/2", f"in/1 {city.english}/2")
        country = self.pick(words.COUNTRIES)
        start = "en/1" if country.feminine else "à/1 le/0"
        return phrase(f"{start} {country.french}/2", f"in/1 {country.english}/2")

    def _time(self) -> Phrase:
        year = 1950 + self.pick(range(80))
        month, in_english = self.pick(words.MONTHS)
        kind = self.pick(("month", "month", "month", "day", "year", "season", "weekday"))
        if kind == "month":
            dated = self.likely(0.8)
            both = f" {year}/3" * dated
            return phrase(f"en/1 {month}/2{both}", f"in/1 {in_english}/2{both}")
        if kind == "day":
            day = 2 + self.pick(range(29))
            return phrase(f"le/1 {day}/2 {month}/3 {year}/4", f"on/1 {day}/2 {in_english}/3 {year}/4")
        if kind == "year":
            return phrase(f"en/1 {year}/2", f"in/1 {year}/2")
        if kind == "weekday":
            french, english = self.pick(words.WEEKDAYS)
            return phrase(french, f"on {english}")
        start, french, english = self.pick(words.SEASONS)
        if self.likely(0.5):
            return phrase(f"{start}/1 {french}/2", f"in/1 the/0 {english}/2")
        return phrase(f"{start}/1 {french}/2 {year}/3", f"in/1 the/0 {english}/2 of/0 {year}/3")

    def _agent(self) -> Nominal:
        return self._institution() if self.likely(0.4) else self._person()

    def _person(self, coordinated: bool = True) -> Nominal:
        if coordinated and self.likely(0.12):
            one, two = self._person(False), self._person(False)
            if not (one.plural or two.plural):
                return Nominal(one.phrase + phrase("et", "and") + two.phrase, one.feminine and two.feminine, True)
        if self.likely(0.45):
            name = self.pick(words.MEN + words.WOMEN)
            return Nominal(phrase(name.french, name.english), name.feminine, False)
        found = self._nominal(words.PEOPLE, region=0.25)
        return found._replace(phrase=self._of(found.phrase)) if self.likely(0.25) else found

    def _institution(self, nested: bool = False) -> Nominal:
        return self._nominal(words.INSTITUTIONS, kind=0.6, region=0.45, plural=0.08, plain=0.8 if nested else 0.7)

    def _thing(self) -> Nominal:
        if self.likely(0.15):
            return self._possessed(words.THINGS)
        found = self._nominal(words.THINGS, colour=0.25, region=0.15)
        return found._replace(phrase=self._of(found.phrase)) if self.likely(0.1) else found

    def _document(self) -> Nominal:
        if self.likely(0.08):
            return self._possessed(words.DOCUMENTS)
        found = self._nominal(words.DOCUMENTS, kind=0.15, region=0.12, quality=0.1)
        if self.likely(0.4):
            return found._replace(phrase=found.phrase + phrase("sur", "on") + self._subject_matter())
        return found._replace(phrase=self._of(found.phrase)) if self.likely(0.25) else found

    def _subject_matter(self) -> Phrase:
        """What a document is about."""
        if self.likely(0.7):
            found = self._institution(nested=True).phrase
            return self._of(found) if self.likely(0.08) else found
        topic = self.pick(words.TOPICS)
        return phrase(f"{'la' if topic.feminine else 'le'}/0 {topic.french}/1", topic.english)

    def _of(self, head: Phrase) -> Phrase:
        """A phrase with a genitive: of a country, or of an institution."""
        of = head + phrase("de", "of")
        if self.likely(0.5):
            country = self.pick(words.COUNTRIES)
            return of + phrase(f"{'la' if country.feminine else 'le'}/0 {country.french}/1", country.english)
        return of + self._institution(nested=True).phrase

    def _possessed(self, nouns: Sequence[Noun]) -> Nominal:
        """Marie's letter: in French, the article and the noun come first, and there is no ending."""
        noun, plural, owner = self.pick(nouns), self.likely(0.25), self.pick(words.MEN + words.WOMEN)
        article = "les" if plural else "la" if noun.feminine else "le"
        french = f"{article}/0 {noun.form(plural)}/1 de/2 {owner.french}/3"
        return Nominal(phrase(french, f"{owner.english}/3 's/2 {noun.in_english(plural)}/1"), noun.feminine, plural)

    def _nominal(
        self,
        nouns: Sequence[Noun],
        kind: float = 0.0,
        region: float = 0.0,
        colour: float = 0.0,
        quality: float = 0.0,
        plural: float = 0.2,
        plain: float = 0.6,
    ) -> Nominal:
        """A noun with its determiner and adjectives; the numbers are the probabilities of its parts.

        An institution of a region has a name, which English writes in capitals.
        """
        noun, many = self.pick(nouns), self.likely(plural)
        table = ((words.KINDS, kind), (words.REGIONS, region), (words.QUALITIES, quality), (words.COLOURS, colour))
        after = [self.pick(some) for some, share in table if self.likely(share)]
        named = nouns is words.INSTITUTIONS and any(one in words.REGIONS for one in after)
        french = noun.form(many)
        front = self.pick(words.FRONT) if self.likely(0.05 if named else 0.12) else None
        found = phrase(french, noun.in_english(many))
        for one in after:
            found = found.before(phrase(one.agreeing(noun.feminine, many), one.english))
        if named:
            (first, number), *others = found.french
            start = ((capital(first) if self.likely(0.2) else first, number), *others)  # French writes both
            found = Phrase(start, tuple((capital(word), number) for word, number in found.english))
        if front is not None:
            single_before_vowel = not (many or noun.feminine) and french[0] in VOWELS
            form = front.before_vowel if single_before_vowel else ""
            french = form or front.agreeing(noun.feminine, many)
            found = phrase(french, front.english) + found
        determiner = self._determiner(noun.feminine, many, french[0] in VOWELS, front is not None, plain)
        return Nominal(determiner + found, noun.feminine, many)

    def _determiner(self, feminine: bool, plural: bool, vowel: bool, front: bool, plain: float) -> Phrase:
        if self.likely(plain):
            return phrase("les" if plural else "la" if feminine else "le", "the")
        kind = self.pick(("a", "a", "this", "our", "their", "number"))
        if kind == "this":
            one = "cette" if feminine else "cet" if vowel else "ce"
            return phrase("ces", "these") if plural else phrase(one, "this")
        if kind in ("our", "their"):
            one, many = {"our": ("notre", "nos"), "their": ("leur", "leurs")}[kind]
            return phrase(many if plural else one, kind)
        if plural and kind == "number":
            return phrase(*self.pick(words.NUMBERS))
        if plural:
            return phrase("de/0" if front else "des/0", "")
        return phrase("une" if feminine else "un", "a")
