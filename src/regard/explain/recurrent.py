"""The topic `attention` for recurrent encoder–decoders: one read of the source by hand, of a given or a small model.

In a recurrent encoder–decoder the query is a state of the decoder, and the keys and values are the states of the
encoder. Bahdanau's decoder attends before its recurrence: the query of step t is the state before it, s₍ₜ₋₁₎. Luong's
decoder attends after its recurrence: the query is the new state, s₍ₜ₎. The output for a word of the target is computed
in six steps.

1. Multiply the query and the keys by the matrices of the score, if it has any.

2. Compare the query with the key of every word of the source: this is the score. An additive score is vᵀ tanh(Wq + Uk).

3. With the scaled dot product, divide by the square root of the width. Other scores do not have this step.

4. Apply softmax to get weights that sum to 1.

5. Multiply every value by its weight.

6. Sum. The result is the context, which Bahdanau's decoder reads in its recurrence and Luong's decoder after it.

Every line can be checked with a calculator: it follows from the lines above. Everything is computed from the matrices
in double precision and compared with the context of the model itself.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.attention import Memory, MultiHead
from regard.errors import UserError
from regard.explain.by_hand import TOLERANCE, AttentionSteps, attention_steps
from regard.explain.copying import FIRST, LETTERS, shifted_pairs, train_copier
from regard.explain.experiment import training_of
from regard.explain.options import AttentionOptions
from regard.explain.topic import Report, Result, check_index, prose
from regard.explain.worked import PRODUCT, Derivation, compared, steps_two_to_six
from regard.mask import Mask
from regard.models.recurrent_decoders import Luong, LuongFeeding
from regard.objectives.objective import CausalModel
from regard.objectives.sequence import forced
from regard.recording import attentions, observe
from regard.render import AttentionView, Layer
from regard.report.sections import Gallery, Section, Table, Text
from regard.scores import NOT_FOR_A_SOURCE, Additive, Dot, LocalMonotonic, Location, Score, Window, check_score
from regard.verbs import Loaded, translate
from regard.verbs.forced import batch_of

TITLE = "Attention, step by step"
WIDTH, LONGEST = 32, 14  # of the small model: its states, and the texts of its training
TEXT = "chafed"  # what the small model reads
ATTENDING = ("bahdanau", "luong", "luong-feeding")
QUERIES = {  # the fact `query` of a model: the name of the query, and what it is
    "before": ("s₍ₜ₋₁₎", "the decoder's state before step t (Bahdanau et al. 2015); in GNMT, that of its first layer"),
    "state": ("s₍ₜ₎", "the decoder's state at step t (Luong et al. 2015)"),
}


@dataclass(frozen=True, eq=False)
class Read:
    """One read of the memory by one query: the inputs and the output of an attention module."""

    score: Score
    query: Tensor  # (D,) the state of the decoder
    keys: Tensor  # (T, D) as the score makes them of the states of the encoder
    values: Tensor  # (T, D) the states of the encoder
    at: int  # the position of the query in the target
    context: Tensor  # (D,) the output of the module


@contextmanager
def record_reads(model: nn.Module) -> Iterator[list[Read]]:
    """Records every read of the attention modules outside of multi-head attention, for the first text of a batch."""
    reads: list[Read] = []
    inner = {id(part.read) for part in model.modules() if isinstance(part, MultiHead)}
    modules = {path: part for path, part in attentions(model).items() if id(part) not in inner}

    def append(
        path: str, queries: Tensor, memory: Memory, mask: Mask, at: Tensor, k_at: Tensor | None, output: Tensor
    ) -> None:
        score = modules[path].score
        for t, query in enumerate(queries[0]):
            reads.append(Read(score, query, memory.keys[0], memory.values[0], int(at[t]), output[0, t]))

    with observe(modules, append):
        yield reads


def compute_read(read: Read) -> AttentionSteps:
    """Computes a read again by hand; use a model in float64.

    Raises AssertionError if the context differs from that of the model by more than TOLERANCE.
    """
    score, keys, bias = read.score, read.keys, None
    if isinstance(score, LocalMonotonic):
        table = Mask(window=score.radius).table(torch.tensor([read.at]), torch.arange(len(keys)), 2)
        assert table is not None
        bias, score = torch.zeros(len(keys), dtype=keys.dtype).masked_fill(~table[0], -math.inf), score.score
    query, scale, v = read.query, 1.0, None
    match score:
        case Additive():
            query, v = score.query(query), score.v
        case Dot():
            query, scale = score.queries(query), score.scale
        case Location():
            keys = score.query.weight[: len(keys)]
        case Window():
            raise UserError("model.window=local-p: this window is not computed by hand; give a model without it.")
    steps = attention_steps(query, keys, read.values, scale, bias, v=v)
    difference = (steps.output - read.context).abs().max().item()
    assert difference < TOLERANCE, f"by hand and by the model differ by {difference:.1e}"
    return steps


def read_tables(read: Read, steps: AttentionSteps, query: str, title: str, words: Sequence[str]) -> list[Table]:
    """All lines of one read. Step 1 shows the key with the largest weight; ``query`` is the name of the query."""
    score = read.score.score if isinstance(read.score, Window) else read.score
    lines, key = Derivation(), int(steps.weights.argmax())
    lines.vector(f"q, the query {query}", read.query)
    if not isinstance(score, Location):
        lines.vector(f"k, the key h of {words[key]}", read.values[key])
    compared(lines, score, read.query, read.values[key], 0)
    notes = {
        True: "The logits are the numbers of Wq: location-based attention does not use the keys.",
        False: f"The keys and the values are the states h of the encoder; step 1 is shown for {words[key]}. {PRODUCT}",
    }
    step_one = Table(f"{title}, step 1", Derivation.columns, lines.rows, notes[isinstance(score, Location)])
    return [step_one, *steps_two_to_six(title, steps, words, score)]


def output_table(out: nn.Linear, parts: Sequence[tuple[str, Tensor]], output: Tensor, title: str) -> Table:
    """h̃ = tanh(W · parts): the layer after attention, which joins the context with other vectors."""
    lines, joined = Derivation(), torch.cat([values for _, values in parts])
    for name, values in parts:
        lines.vector(name, values)
    lines.vector("z, all of them joined", joined)
    lines.product("z · W", joined, out)
    lines.vector("u, z times W", out(joined))
    lines.vector("h̃ = tanh(u)", torch.tanh(out(joined)))
    lines.vector("the same, by the model", output)
    return Table(title, Derivation.columns, lines.rows, PRODUCT)


@dataclass(frozen=True, eq=False)
class Reads:
    """All reads of a source while a target is predicted."""

    source: list[str]
    target: list[str]
    reads: list[Read]  # one for each word of the target
    query: str  # a key of QUERIES
    about: str  # which model this is
    output: list[Table]  # the layer after attention, where it is shown


def run_recurrent(options: AttentionOptions, model: Loaded | None, report: Report) -> Result:
    """Computes by hand how a recurrent decoder reads its source when it predicts one word."""
    if options.head is not None or options.layer:
        given = f"head={options.head}" if options.head is not None else f"layer={options.layer}"
        raise UserError(f"{given}: a recurrent decoder has one attention without heads; leave this option out.")
    found = _small_model(options, report) if model is None else _given_model(options, model)
    at = check_index("word", options.word, len(found.target))
    with torch.no_grad():
        every = [compute_read(read) for read in found.reads]
    read, steps, (query, meaning) = found.reads[at], every[at], QUERIES[found.query]
    difference = max((one.output - read.context).abs().max().item() for one, read in zip(every, found.reads))
    weights = torch.stack([one.weights for one in every]).float().numpy()[None]
    view = AttentionView("weights", found.target, found.source, [Layer("attention", weights)])
    name = type(read.score).__name__.lower()
    sections: list[Section] = [
        prose(__doc__),
        *read_tables(read, steps, query, f"Query {query}, which predicts “{found.target[at]}”", found.source),
        *found.output,
        Gallery("All words", [view]),
        Text(
            f"The context computed by hand and that of the model differ by at most {difference:.1e}, over all "
            f"{len(found.target)} words."
        ),
    ]
    data = {
        **{"text": found.source, "target": found.target, "word": found.target[at], "query": query, "score": name},
        **{"model": steps.numbers, "weights": [one.weights for one in every], "difference": difference},
    }
    about = (
        f"{found.about} Shown is the query that predicts “{found.target[at]}”, word {at} of the target. The query is "
        f"{query}, {meaning}. Words count from 0."
    )
    return Result(TITLE, about, data, sections)


def _small_model(options: AttentionOptions, report: Report) -> Reads:
    """Trains a small recurrent model to copy letters, and lets it copy a word."""
    if options.decoder not in ATTENDING:
        raise UserError(f"decoder={options.decoder}: give {', '.join(ATTENDING[:-1])} or {ATTENDING[-1]}.")
    check_score(options.score, NOT_FOR_A_SOURCE)
    steps, seed = 2 * options.steps, options.seed
    network = train_copier("copying letters", options.decoder, options.score, WIDTH, LONGEST, steps, seed, report)
    model, pairs = network.model.double(), shifted_pairs(torch.tensor([[FIRST + LETTERS.index(c) for c in TEXT]]))
    with torch.no_grad(), record_reads(model) as reads:
        features, _ = model.advance(pairs[:, 1], model.start(pairs[:, 0]))
    at, output = check_index("word", options.word, len(TEXT)), list[Table]()
    if isinstance(model.decoder, Luong | LuongFeeding):
        read = reads[at]
        parts: list[tuple[str, Tensor]] = [("c, the context", read.context), ("s, the state s₍ₜ₎", read.query)]
        with torch.no_grad():
            output.append(output_table(model.decoder.out, parts, features[0, at], "The layer after attention"))
    about = (
        f"The model is a recurrent encoder–decoder (GRU, width {WIDTH}, decoder {options.decoder}, score "
        f"{options.score}), {training_of(steps, seed)} to copy texts of 2 to {LONGEST} random letters. It reads "
        f"“{TEXT}”, and predicts each letter from the true letters before it."
    )
    return Reads(list(TEXT), list(TEXT), reads, model.config.query, about, output)


def _given_model(options: AttentionOptions, model: Loaded) -> Reads:
    """Translates the text with the model, then reads its own translation again and records the attention."""
    if not options.text.strip():
        raise UserError(f'TEXT is empty; for example: regard explain attention {model.path} "a line of text"')
    if options.decoder:
        raise UserError(
            f"decoder={options.decoder}: this is for the small model; the model of {model.path} has its own."
        )
    (found,) = translate(model, [options.text], align=False)
    model.module.double()
    with torch.no_grad(), record_reads(model.module) as reads:
        forced(cast(CausalModel, model.module), batch_of(model, [(found.source_tokens, found.tokens)]))
    if not reads:
        raise UserError(f"{model.path}: its decoder has no attention; train one with model.decoder=bahdanau.")
    if not found.tokens:
        raise UserError(f"{options.text}: the model translates this to nothing; give another text.")
    about = f"{model.about} It reads “{options.text.strip()}”, and its translation is “{found.text}”."
    query = model.module.config.query
    return Reads(
        found.source_pieces, found.target_pieces[: len(found.tokens)], reads[: len(found.tokens)], query, about, []
    )
