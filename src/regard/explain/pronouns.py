"""What "it" means: sentences in two versions, alike but for their last words, which decide between two nouns.

The manner is that of Winograd schemas (Levesque et al. 2012). Who reads only up to "it" cannot know; and whoever always
takes the nearer noun, or the first, is right in just one version of each.
"""

from dataclasses import dataclass

PRONOUN = "it"

# The nouns stand in asterisks, one version's end after each bar: the first is true of the first noun.
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
    """A sentence with one of its ends."""

    words: tuple[str, ...]
    nouns: tuple[int, int]  # where they stand among the words
    right: int  # which of the two "it" means: 0 or 1

    @property
    def text(self) -> str:
        return " ".join(self.words) + "."

    @property
    def pronoun(self) -> int:
        """Where "it" stands."""
        return self.words.index(PRONOUN)

    @property
    def last(self) -> int:
        """Where the last word stands: for who reads from left to right, the first place at which all is known."""
        return len(self.words) - 1


Pair = tuple[Version, Version]


def pairs() -> list[Pair]:
    """Every sentence in its two versions; "it" is the first noun in the first of them, the second in the second."""
    return [_pair(line) for line in PAIRS.strip().splitlines()]


def _pair(line: str) -> Pair:
    start, *ends = line.split(" | ")
    read_pointer = start.split()
    first, second = (at for at, word in enumerate(read_pointer) if word.startswith("*"))
    begun = [word.strip("*") for word in read_pointer]
    versions = [Version((*begun, *end.split()), (first, second), right) for right, end in enumerate(ends)]
    return versions[0], versions[1]
