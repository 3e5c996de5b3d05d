"""`regard explain heads`: what each head attends to, and whether a head resolves the pronoun "it"."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import (
    Out,
    Run,
    Seed,
    Steps,
    TableCells,
    Text,
    TopicResult,
    join_paragraphs,
    run_with_progress,
    show,
)
from regard.cli.topics.coreference import COLUMNS, MAX_HEADS, Coreference, evaluate_coreference, layer_number
from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.heads import HeadStatistics, TextWeights
    from regard.render.report import Section

SENTENCES = 100
EXAMPLE = "yesterday the dog barked , the bird sang , the owl hooted ."
PATTERN_NAMES = {
    "previous": "the previous word",
    "next": "the next word",
    "itself": "itself",
    "first": "the first position",
    "separator": "separators",
}
HEADS_PER_PICTURE = (1, 2, 8)


def command(
    run: Run = None,
    text: Text = "",
    steps: Steps = 400,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """What each head attends to; whether a head resolves "it".

    There is one line for each head: its weight on the previous word, the next word, itself, the first position and
    separators, as means over all words; the entropy of its weights in nats; and the mean distance to the words that it
    attends to. The last line is uniform attention, for comparison. A second table has the strongest head for each of
    these patterns. Layers and heads count from 0.

    The model in DIR reads TEXT, or without it the sentences about "it" below. Without DIR, a small encoder is trained
    to predict masked words ("yesterday the dog barked , the bird sang ."), in about twenty seconds. Then every word
    of a hundred sentences is masked in turn, and the statistics are those of the masked positions.

    A model in DIR, if it is an English one, also reads pairs of sentences that differ only in the ending. The ending
    decides which of two nouns "it" means. One half of the pairs selects the head that most often attends from "it"
    to the correct noun; the other half tests this head against chance. A causal model has not read the ending at "it",
    so there the last word is used instead of "it".

    The page shows one head, two heads and eight heads, as lines and as matrices.

    \b
    Examples:
      regard explain heads -o heads.html
      regard explain heads runs/shakespeare "to be or not to be"
      regard explain heads models/bert-base-uncased -o heads.html
    """
    from regard.explain import heads

    observed = _observe_small_model(steps, seed) if run is None else _observe_run(run, text)
    found, coreference = heads.run(observed.texts), observed.coreference
    rows = [
        [
            layer_number(one.layer),
            "–" if one.head < 0 else str(one.head),
            *(f"{getattr(one, name):.2f}" for name in heads.STATISTICS),
        ]
        for one in found
    ]
    strongest = [
        [
            PATTERN_NAMES[name],
            layer_number(one.layer),
            str(one.head),
            *(f"{getattr(statistics, name):.2f}" for statistics in (one, found[-1])),
        ]
        for name, one in heads.strongest_heads(found).items()
    ]
    tables = {
        "All heads": (["layer", "head", *heads.STATISTICS], rows),
        "The strongest head for each pattern": (["weight on", "layer", "head", "weight", "uniform"], strongest),
    }
    terminal: list[RenderableType] = [*(grid(title, *table) for title, table in tables.items()), observed.note]
    if coreference is not None:
        title = f"Attention from {coreference.query} to the nouns: the best heads over all {coreference.pairs} pairs"
        best = [grid(title, COLUMNS, coreference.rows()[:MAX_HEADS])]
        terminal += [*(best if coreference.scores else []), coreference.summary()]
    data = {
        "run": run,
        "text": text,
        "heads": [vars(one) for one in found],
        "coreference": coreference.data() if coreference else None,
    }
    sections = [
        *_sections(found, tables, observed.note),
        *_coreference_sections(coreference),
        *observed.pictures(found),
    ]
    show(TopicResult("What heads attend to", data, terminal, sections), out, json)


@dataclass(frozen=True, eq=False)
class Observed:
    """The weights of a model on some texts, and one text for the pictures."""

    texts: "Sequence[TextWeights]"
    note: str
    pieces: Sequence[str]  # the tokens of the text in the pictures
    weights: "dict[str, Tensor]"  # its weights, (H, T, T) by layer
    queries: Sequence[int]  # the tokens whose lines are drawn: with eight heads, the lines of all are too many
    coreference: Coreference | None = None

    def pictures(self, found: "list[HeadStatistics]") -> "list[Section]":
        """Pictures of one layer: its best heads for "it" if known, otherwise the heads with the clearest patterns."""
        import numpy as np

        from regard.render.report import Gallery, LineGallery
        from regard.render.view import AttentionView
        from regard.render.view_data import Floats, Layer

        if self.coreference and self.coreference.scores:
            order = [(one.layer, one.head) for one in self.coreference.ranked()]
            layer = self.coreference.scores.best_on_test.layer
        else:
            order = _rank_by_pattern(found)
            layer = order[0][0]
        heads = [head for name, head in order if name == layer]
        weights: Floats = self.weights[layer].float().numpy()
        name = f"layer {layer_number(layer)}"

        def view(title: str, shown: Sequence[int], weights: Floats) -> AttentionView:
            layers = [Layer(name, weights[list(shown)], kept_heads=tuple(shown))]
            return AttentionView(title, self.pieces, self.pieces, layers)

        counts = sorted({min(count, len(heads)) for count in HEADS_PER_PICTURE})
        is_query = np.isin(np.arange(len(self.pieces)), self.queries)[:, None]  # (T, 1)
        lines = [
            view(f"{count} heads" if count > 1 else "1 head", heads[:count], weights * is_query) for count in counts
        ]
        matrices = [view(f"head {head}", [head], weights) for head in heads[: counts[-1]]]
        query = "".join(self.pieces[at] for at in self.queries).strip("▁Ġ ")
        source = "all words" if is_query.all() else f"“{query}”"
        return [
            LineGallery(f"Heads of {name} as lines: from {source} on the left to the keys on the right", lines),
            Gallery("The same heads as matrices", matrices),
        ]


def _rank_by_pattern(found: "list[HeadStatistics]") -> list[tuple[str, int]]:
    """The strongest head of each pattern, ordered by its excess over uniform attention; then the rest by entropy."""
    from regard.explain.heads import strongest_heads

    *heads, uniform = found
    strongest = strongest_heads(found)
    by_excess = sorted(strongest, key=lambda name: getattr(uniform, name) - getattr(strongest[name], name))
    rest = sorted(heads, key=lambda one: one.entropy)
    ranked = (*(strongest[name] for name in by_excess), *rest)
    return list(dict.fromkeys((one.layer, one.head) for one in ranked))


def _observe_small_model(steps: int, seed: int) -> Observed:
    """Trains a small encoder and masks each word of some sentences in turn."""
    import random

    from regard.explain.masked_lm import ANIMALS, mask_each_word, sentence, train_encoder

    network, rng = run_with_progress(train_encoder(steps, seed)), random.Random(2**40 + seed)
    results = [mask_each_word(network, sentence(rng, rng.choice(ANIMALS))) for _ in range(SENTENCES)]
    accuracy = sum(one for _, one in results) / SENTENCES
    note = f"Every word of {SENTENCES} sentences was masked in turn; {accuracy:.0%} were predicted correctly."
    words = EXAMPLE.split()
    (weights, _), _ = mask_each_word(network, words)
    return Observed([text for text, _ in results], note, words, weights, [words.index("sang")])


def _observe_run(run: Path, text: str) -> Observed:
    """Runs the model of a directory on a text, or on the sentences about "it"."""
    from regard.cli.topics.tokenized import load_transformer, tokenize

    model = load_transformer(run)
    coreference = evaluate_coreference(model)
    if text.strip():
        texts, note = [tokenize(model, text)], f"The text is {text!r}."
        shown, queries = texts[0], list(range(len(texts[0].tokens)))
    elif coreference.sentences:
        texts = [one for one, _ in coreference.sentences]
        note = f"The texts are {len(texts)} sentences about “it”."
        shown, query = coreference.sentences[2 % len(texts)]  # from a pair that did not select the best head
        queries = [at for at, word in enumerate(shown.words) if word == query]
    else:
        raise UserError(
            f"{run}: cannot read the English sentences that are used without a TEXT; give a text, for example: "
            f'regard explain heads {run} "a line of text"'
        )
    weights = [(one.weights, one.separators) for one in texts]
    return Observed(weights, note, shown.pieces, shown.weights, queries, coreference)


def _sections(found: "list[HeadStatistics]", tables: dict[str, TableCells], note: str) -> "Iterator[Section]":
    from regard.render import report

    text = join_paragraphs(
        "Training decides what each head attends to. The tables show how much of a head's weight is on the previous "
        "word, the next word, the word itself, the first position and separators, as means over all words. They also "
        "show the entropy of the weights in nats, and the mean distance to the words that the head attends to.",
        "The last line is uniform attention: a head that gives every visible word the same weight. A head has learned "
        "a pattern where its numbers differ from this line. Layers and heads count from 0.",
    )
    values = [[getattr(one, name) for one in found] for name in PATTERN_NAMES]
    names = [one.layer if one.head < 0 else f"L{layer_number(one.layer)} H{one.head}" for one in found]
    every, strongest = (
        report.Table(title, columns, rows, table_note)
        for (title, (columns, rows)), table_note in zip(tables.items(), (note, ""))
    )
    heatmap = report.Heatmap(
        "weight on …", "L: layer, H: head", "", values, list(PATTERN_NAMES.values()), names, vmax=1.0
    )
    yield from (report.Text(text), strongest, report.Heatmaps("All heads as a picture", [heatmap]), every)


def _coreference_sections(coreference: Coreference | None) -> "Iterator[Section]":
    from regard.explain.pronouns import pairs
    from regard.render import report

    if coreference is None:
        return
    one, other = pairs()[0]
    text = join_paragraphs(
        f"In “{one.text}”, “it” is the ladder. In “{other.text}”, “it” is the roof. To find out what “it” means, one "
        "must understand the ending of the sentence. Is there a head that attends to the correct noun?",
        "A head that always attends to the first noun, or always to the nearer one, is correct in one half of the "
        "sentences. The last column removes this effect: it compares the two versions of a pair, and counts the pairs "
        "in which the attention shifts towards the noun that is then correct.",
        coreference.summary(),
    )
    yield report.Text(text, "What “it” means")
    if coreference.scores:
        title = "All heads, from the best to the worst"
        yield report.Table(title, COLUMNS, coreference.rows(), f"Over all {coreference.pairs} pairs.")
