"""What each head attends to, and whether a head resolves “it”.

Training decides what each head attends to. The tables show how much of a head's weight is on the previous word, the
next word, the word itself, the first position and separators, as means over all words (Clark et al. 2019, §3). They
also show the entropy of the weights in nats, and the mean distance to the words that the head attends to. The last line
is uniform attention: a head that gives every visible word the same weight. A head has a pattern where its weight is
clearly above this line; small differences also occur with random weights (steps=0). Layers and heads count from 0.

Without a model, a small encoder is trained to predict masked words (“yesterday the dog barked , the bird sang .”). Then
every word of a hundred sentences is masked in turn, and the statistics are those of the masked positions. In the
pictures, too, the word that attends is masked. A model that is given reads the text, or without a text the sentences
about “it”.

If the model is an English one, it also reads pairs of sentences that differ only in the ending. The ending decides
which of two nouns “it” means. One half of the pairs selects the head that most often attends from “it” to the correct
noun; the other half tests this head against chance. A causal model has not read the ending at “it”, so there the last
word is used instead.

It also reads a hundred sentences in which the subject, the verb and the object are marked. For each relation, such as
from a verb to its subject, one half of the sentences selects the head that most often gives the largest weight to the
right word. The other half compares it with the best fixed offset, such as “always the word to the left” (Clark et al.
2019, §4.2).
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from regard.errors import UserError
from regard.explain.coreference import Coreference, evaluate_coreference, layer_number
from regard.explain.experiment import sizes_of, training_of
from regard.explain.masked_lm import ANIMALS, SHAPE, VOCABULARY, TextWeights, mask_each_word, sentence, train_encoder
from regard.explain.options import HeadsOptions
from regard.explain.roles import Grammar, evaluate_roles
from regard.explain.tokenized import load_transformer, tokenize
from regard.explain.topic import Report, Result, no_report, prose
from regard.render import AttentionView, Layer
from regard.report.sections import Cell, Gallery, Heatmap, Heatmaps, LineGallery, Section, Table

SENTENCES = 100
EXAMPLE = "yesterday the dog barked , the bird sang , the owl hooted ."
PATTERNS = {  # statistics that are a part of the weight
    "previous": "the previous word",
    "next": "the next word",
    "itself": "itself",
    "first": "the first position",
    "separator": "separators",
}
HEADS_PER_PICTURE = (1, 2, 8)


@dataclass(frozen=True)
class HeadStatistics:
    """The statistics of one head: means over all queries."""

    layer: str  # "uniform" for uniform attention
    head: int  # -1 for uniform attention
    previous: float  # weight on the previous word
    next: float
    itself: float
    first: float  # weight on the first position
    separator: float  # total weight on separators and punctuation, without the first position
    entropy: float  # of the weights, in nats
    distance: float  # mean distance to the keys, in words


STATISTICS = tuple(field.name for field in fields(HeadStatistics))[2:]


@dataclass(frozen=True, eq=False)
class Observed:
    """The weights of a model on some texts, and one text for the pictures."""

    texts: Sequence[TextWeights]
    about: str  # which model this is
    note: str
    pieces: Sequence[str]  # the tokens of the text in the pictures
    weights: dict[str, Tensor]  # its weights, (H, T, T) by layer
    queries: Sequence[int]  # the tokens whose lines are drawn: with eight heads, the lines of all are too many
    query: str  # their text
    coreference: Coreference | None = None
    grammar: Grammar | None = None


def run(options: HeadsOptions, report: Report = no_report) -> Result:
    """Computes the statistics of all heads of a model, and evaluates whether a head resolves "it"."""
    observed = _observe_model(options) if options.model else _observe_small_model(options, report)
    found, coreference = head_statistics(observed.texts), observed.coreference
    uniform = found[-1]
    rows: list[list[Cell]] = [
        [layer_number(one.layer), one.head if one.head >= 0 else None, *(f"{getattr(one, n):.2f}" for n in STATISTICS)]
        for one in found
    ]
    strongest: list[list[Cell]] = []
    for name, one in strongest_heads(found).items():
        above = getattr(one, name) > getattr(uniform, name)
        place = [layer_number(one.layer), one.head] if above else ["none above uniform", None]
        strongest.append([PATTERNS[name], *place, *(f"{getattr(each, name):.2f}" for each in (one, uniform))])
    values = [[getattr(one, name) for one in found] for name in PATTERNS]
    names = [one.layer if one.head < 0 else f"L{layer_number(one.layer)} H{one.head}" for one in found]
    heatmap = Heatmap("weight on …", "L: layer, H: head", "", values, list(PATTERNS.values()), names, vmax=1.0)
    sections: list[Section] = [
        prose(__doc__),
        Table("The strongest head for each pattern", ["weight on", "layer", "head", "weight", "uniform"], strongest),
        Heatmaps("All heads as a picture", [heatmap]),
        Table("All heads", ["layer", "head", *STATISTICS], rows, observed.note),
        *(coreference.sections() if coreference else []),
        *(observed.grammar.sections() if observed.grammar else []),
        *_pictures(observed, found),
    ]
    data = {
        "run": options.model or None,
        "text": options.text,
        "heads": found,
        "coreference": coreference.numbers if coreference else None,
        "grammar": observed.grammar.numbers if observed.grammar else None,
    }
    return Result("What heads attend to", observed.about, data, sections)


def _observe_small_model(options: HeadsOptions, report: Report) -> Observed:
    """Trains a small encoder and masks each word of some sentences in turn."""
    network, rng = train_encoder(options.steps, options.seed, report), random.Random(2**40 + options.seed)
    results = [mask_each_word(network, sentence(rng, rng.choice(ANIMALS))) for _ in range(SENTENCES)]
    accuracy = sum(one for _, one in results) / SENTENCES
    note = (
        f"Every word of {SENTENCES} sentences was masked in turn; {accuracy:.0%} were predicted correctly. Chance, a "
        f"choice among all {len(VOCABULARY)} words, is {1 / len(VOCABULARY):.1%}."
    )
    about = (
        f"The model is a small encoder ({sizes_of(SHAPE)}), {training_of(options.steps, options.seed)} to predict "
        "masked words of toy sentences about animals and their sounds."
    )
    words = EXAMPLE.split()
    (weights, _), _ = mask_each_word(network, words)
    return Observed([text for text, _ in results], about, note, words, weights, [words.index("sang")], "sang")


def _observe_model(options: HeadsOptions) -> Observed:
    """Runs a model on a text, or on the sentences about "it", and on the sentences with marked roles."""
    model = load_transformer(options.model)
    coreference, grammar = evaluate_coreference(model), evaluate_roles(model)
    if options.text.strip():
        texts, note = [tokenize(model, options.text)], f"The text is “{options.text.strip()}”."
        shown, queries = texts[0], list(range(len(texts[0].tokens)))
    elif coreference.sentences:
        texts = [one for one, _ in coreference.sentences]
        note = f"The texts are {len(texts)} sentences about “it”."
        shown, it = coreference.sentences[2 % len(texts)]  # from a pair that did not select the best head
        queries = [at for at, word in enumerate(shown.words) if word == it]
    else:
        raise UserError(
            f"{options.model}: cannot read the English sentences that are used without a TEXT; give a text, for "
            f'example: regard explain heads {options.model} "a line of text"'
        )
    weights = [(one.weights, one.separators) for one in texts]
    query = model.tokenizer.decode([shown.tokens[at] for at in queries]).strip()
    about = f"{model.about} {note}"
    return Observed(weights, about, note, shown.pieces, shown.weights, queries, query, coreference, grammar)


def head_statistics(texts: Iterable[TextWeights]) -> list[HeadStatistics]:
    """The statistics of all heads, as means over all words of the texts; the last item is uniform attention."""
    sums: dict[tuple[str, int], Tensor] = {}
    words = 0
    for layers, separators in texts:
        words += len(separators)
        for name, weights in layers.items():
            for head, statistics in enumerate(_sum_statistics(weights, separators)):
                sums[name, head] = sums.get((name, head), torch.zeros(())) + statistics
        visible = torch.stack([(weights > 0).any(dim=0) for weights in layers.values()]).any(dim=0)[None]  # to any head
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        sums["uniform", -1] = sums.get(("uniform", -1), torch.zeros(())) + _sum_statistics(uniform, separators)[0]
    sums["uniform", -1] = sums.pop(("uniform", -1))  # moved to the end
    return [HeadStatistics(layer, head, *(total / words).tolist()) for (layer, head), total in sums.items()]


def strongest_heads(found: Sequence[HeadStatistics]) -> dict[str, HeadStatistics]:
    """For each of PATTERNS, the head with the largest weight; uniform attention, the last item, is left out."""
    return {name: max(found[:-1], key=lambda one: getattr(one, name)) for name in PATTERNS}


def _sum_statistics(weights: Tensor, separators: Sequence[bool]) -> Tensor:
    """(H, T, T) → (H, statistics), each summed over the queries."""
    at = torch.arange(len(separators))
    offset = at - at[:, None]  # (T, T) from query to key, positive to the right
    patterns = (
        offset == -1,
        offset == 1,
        offset == 0,
        (at == 0).expand_as(offset),
        (torch.tensor(separators) & (at > 0)).expand_as(offset),
    )
    pattern_weights = [(weights * pattern).sum(dim=(-2, -1)) for pattern in patterns]
    entropy = -torch.xlogy(weights, weights).sum(dim=(-2, -1))
    return torch.stack([*pattern_weights, entropy, (weights * offset.abs()).sum(dim=(-2, -1))], dim=-1)


def _rank_by_pattern(found: list[HeadStatistics]) -> list[tuple[str, int]]:
    """The strongest head of each pattern, ordered by its excess over uniform attention; then the rest by entropy."""
    *heads, uniform = found
    strongest = strongest_heads(found)
    by_excess = sorted(strongest, key=lambda name: getattr(uniform, name) - getattr(strongest[name], name))
    ranked = (*(strongest[name] for name in by_excess), *sorted(heads, key=lambda one: one.entropy))
    return list(dict.fromkeys((one.layer, one.head) for one in ranked))


def _pictures(observed: Observed, found: list[HeadStatistics]) -> list[Section]:
    """Pictures of one layer: its best heads for "it" if known, otherwise the heads with the clearest patterns."""
    if observed.coreference and observed.coreference.scores:
        order = [(one.layer, one.head) for one in observed.coreference.ranked()]
        layer = observed.coreference.scores.best_on_test.layer
    else:
        order = _rank_by_pattern(found)
        layer = order[0][0]
    heads = [head for name, head in order if name == layer]
    pieces, weights, name = observed.pieces, observed.weights[layer].float().numpy(), f"layer {layer_number(layer)}"
    is_query = np.isin(np.arange(len(pieces)), observed.queries)[:, None]  # (T, 1)

    def view(title: str, shown: Sequence[int], queries: bool) -> AttentionView:
        chosen = weights[list(shown)] * (is_query if queries else True)
        return AttentionView(title, pieces, pieces, [Layer(name, chosen, kept_heads=tuple(shown))])

    counts = sorted({min(count, len(heads)) for count in HEADS_PER_PICTURE})
    lines = [view(f"{count} heads" if count > 1 else "1 head", heads[:count], True) for count in counts]
    matrices = [view(f"head {head}", [head], False) for head in heads[: counts[-1]]]
    source = "all words" if is_query.all() else f"“{observed.query}”"
    return [
        LineGallery(f"Heads of {name} as lines: from {source} on the left to the keys on the right", lines),
        Gallery("The same heads as matrices", matrices),
    ]
