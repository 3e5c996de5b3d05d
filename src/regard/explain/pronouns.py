"""Pairs of sentences in which the last words decide which of two nouns the pronoun "it" means.

They follow the Winograd schemas (Levesque et al. 2012). The part up to "it" is the same in both, so it does not reveal
the answer; and always choosing the first noun, or always the nearer one, is correct in one version of each pair.
"""

from dataclasses import dataclass

PRONOUN = "it"

# The two nouns are in asterisks. A bar precedes each of the two endings: "it" is the first noun with the first ending.
PAIRS = """
The *ladder* did not reach the *roof* because it was too | short | high
The *horse* would not jump over the *fence* because it was too | lame | tall
The *rope* could not hold the *boat* because it was too | thin | heavy
The *cat* ran away from the *dog* because it was | afraid | barking
The *lamp* could not light the *hall* because it was too | weak | large
The *truck* could not pass under the *bridge* because it was too | tall | low
The *nail* went through the *board* because it was so | sharp | soft
The *snow* broke the *branch* because it was so | heavy | weak
The *knife* could not cut the *bread* because it was too | blunt | stale
The *mouse* got away from the *owl* because it was so | small | slow
The *coat* did not fit in the *drawer* because it was too | thick | shallow
The *piano* would not go up the *staircase* because it was too | bulky | steep
The *medicine* was given to the *cow* because it was | effective | ill
The *letter* had to be folded for the *envelope* because it was too | long | small
The *rain* filled the *bucket* although it was | brief | deep
The *sun* softened the *candle* because it was so | hot | thin
The *spider* caught the *fly* because it was | hungry | careless
The *river* flooded the *field* because it was | swollen | low
The *wind* blew down the *shed* because it was so | strong | flimsy
The *music* drowned out the *speech* because it was so | loud | quiet
The *blanket* did not cover the *bed* because it was too | small | wide
The *bus* overtook the *tractor* because it was so | fast | slow
The *paint* did not stick to the *wall* because it was too | watery | dusty
The *magnet* could not lift the *coin* because it was too | weak | heavy
The *pump* soon emptied the *pond* because it was so | powerful | shallow
The *cake* did not fit under the *lid* because it was too | high | flat
The *umbrella* did not shelter the *bench* because it was too | narrow | long
The *hawk* did not see the *rabbit* because it was | asleep | hidden
The *stone* sank into the *mud* because it was so | heavy | soft
The *radio* could not be heard over the *storm* because it was too | faint | loud
The *net* did not catch the *fish* because it was | torn | tiny
The *cork* fell into the *jar* because it was too | thin | wide
The *school* bought the *printer* because it | wanted one | was cheap
The *village* sold the *mill* because it | needed money | stood empty
The *museum* returned the *painting* because it | had doubts | was stolen
The *dog* chewed the *slipper* because it | was bored | tasted good
The *fire* destroyed the *barn* because it | spread quickly | was wooden
The *farm* gave the *pony* away because it | was closing | kicked people
The *ship* hit the *rock* because it | was off course | lay under water
The *goat* ate the *hat* because it | was hungry | was straw
The *city* tore down the *tower* because it | wanted a park | was leaning
The *parrot* copied the *bell* because it | liked the sound | rang all day
The *camera* missed the *comet* because it | was switched off | was too faint
The *clock* woke the *puppy* because it | rang at dawn | slept lightly
The *company* dropped the *product* because it | was short of money | sold badly
The *train* waited for the *ferry* because it | was early | was late
The *soup* hurt the *tongue* because it was so | spicy | sore
The *hen* left the *nest* because it was | thirsty | wet
"""


@dataclass(frozen=True)
class Version:
    """A sentence with one of its two endings."""

    words: tuple[str, ...]
    nouns: tuple[int, int]  # indices of both nouns in ``words``
    correct: int  # the noun that "it" means: 0 or 1

    @property
    def text(self) -> str:
        return " ".join(self.words) + "."

    @property
    def pronoun(self) -> int:
        """The index of "it"."""
        return self.words.index(PRONOUN)

    @property
    def last(self) -> int:
        """The index of the last word: the first position at which a causal model has seen the whole sentence."""
        return len(self.words) - 1


Pair = tuple[Version, Version]


def pairs() -> list[Pair]:
    """All pairs. "It" means the first noun in the first version, and the second noun in the second version."""
    return [_parse_pair(line) for line in PAIRS.strip().splitlines()]


def _parse_pair(line: str) -> Pair:
    beginning, *endings = line.split(" | ")
    marked = beginning.split()
    first, second = (at for at, word in enumerate(marked) if word.startswith("*"))
    words = [word.strip("*") for word in marked]
    versions = [Version((*words, *end.split()), (first, second), correct) for correct, end in enumerate(endings)]
    return versions[0], versions[1]
