"""What a person does with a trained model."""

from regard.verbs.ablating import Ablation, RankedHead, Said, ablate, look_ablated, rank_heads
from regard.verbs.answering import Answered, Span, answer
from regard.verbs.captioning import Caption, caption
from regard.verbs.embedding import Embedded, embed
from regard.verbs.exporting import Exported, export
from regard.verbs.filling import fill
from regard.verbs.generating import Generated, Piece, generate, generate_stream
from regard.verbs.given import in_pieces
from regard.verbs.infilling import Filled, Guess
from regard.verbs.labelling import Classified, classify
from regard.verbs.loaded import Loaded, load
from regard.verbs.looking import look, view
from regard.verbs.neighbours import Neighbour, neighbours
from regard.verbs.scoring import Aligned, Scored, Units, align, aligned, score
from regard.verbs.search import Translation, translate
from regard.verbs.tagging import Tagged, tag

# fmt: off
__all__ = [
    "Ablation", "Aligned", "Answered", "Caption", "Classified", "Embedded", "Exported", "Filled", "Generated", "Guess",
    "Loaded", "Neighbour", "Piece", "RankedHead", "Said", "Scored", "Span", "Tagged", "Translation", "Units", "ablate",
    "align", "aligned", "answer", "caption", "classify", "embed", "export", "fill", "generate", "generate_stream",
    "in_pieces", "load", "look", "look_ablated", "neighbours", "rank_heads", "score", "tag", "translate", "view",
]
# fmt: on
