"""Every printed line of `regard explain attention` can be computed again from the numbers that are printed before it.

The numbers are read from the cells of the tables. They are rounded, so a result may differ from the printed one by what
the rounding of its inputs explains, and by half a unit of its own last digit.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from regard.explain.attention import SENTENCE, run
from regard.explain.by_hand import compute_by_hand, record_block_calls
from regard.explain.experiment import TinyTransformer
from regard.explain.options import AttentionOptions
from regard.explain.worked import MAX_HEADS, block_tables
from regard.layers.transformer import Shape
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.models import GptConfig
from regard.report.sections import Cell, Table, Text

TINY = Shape(width=16, heads=2, layers=2, inner=24, context=12, dropout=0.0, furthest=8, buckets=8)
ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda u: max(u, 0.0),
    "gelu": lambda u: u / 2 * (1 + math.erf(u / math.sqrt(2))),
    "gelu-tanh": lambda u: u / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))),
    "silu": lambda u: u / (1 + math.exp(-u)),
    "tanh": math.tanh,
}
KEYS = ("<bos>", "a", "b", "c", "d")


@dataclass(frozen=True)
class Printed:
    """A number as it is printed, and half a unit of its last digit."""

    value: float
    half: float = 0.0


ZERO = Printed(0.0)
Vector = list[Printed]


def numbers(cell: Cell) -> Vector:
    """The numbers of a cell, such as "0.123 -4.560 …"."""
    assert isinstance(cell, str)
    found = re.findall(r"-?\d+\.(\d+)", cell)
    values = re.findall(r"-?\d+\.\d+", cell)
    return [Printed(float(value), 0.5 * 10.0 ** -len(digits)) for value, digits in zip(values, found)]


def scalar(cell: Cell) -> Printed:
    return ZERO if cell is None else numbers(cell)[0]


def check(printed: Printed, compute: Callable[..., float], *inputs: Printed) -> None:
    """Computes a printed number from printed inputs."""
    values = [one.value for one in inputs]
    result, slack = compute(*values), 0.0
    for at, one in enumerate(inputs):
        moved = [value + one.half * (at == other) for other, value in enumerate(values)]
        slack += abs(compute(*moved) - result)
    assert abs(result - printed.value) <= 1.05 * (printed.half + slack) + 1e-9, (printed, result, slack)


def product(*values: float) -> float:
    """a₁ … aₙ, b₁ … bₙ, other, bias → Σ aᵢ bᵢ + other + bias"""
    *factors, other, bias = values
    half = len(factors) // 2
    return sum(a * b for a, b in zip(factors[:half], factors[half:])) + other + bias


def each(found: Vector, compute: Callable[..., float], *vectors: Vector) -> None:
    for printed, *inputs in zip(found, *vectors, strict=True):
        check(printed, compute, *inputs)


class Checker:
    """Recomputes the rows of a table of lines from top to bottom."""

    def __init__(self, table: Table, given: Sequence[str]) -> None:
        self.table, self.given = table, given
        self.width, self.epsilon = 1, 0.0
        if constants := re.search(r"÷ (\d+) \+ ([\d.e-]+)\)", table.note):
            self.width, self.epsilon = int(constants[1]), float(constants[2])
        self.known: dict[str, Vector] = {}
        self.first: Printed | None = None  # the result of a product, which the next row must begin with
        self.last: Vector = []

    def run(self) -> dict[str, Vector]:
        for row in self.table.rows:
            name = str(row[0])
            first, self.first = self.first, None
            vector = numbers(row[1]) if row[1] is not None else []
            if first is not None:
                check(vector[0], lambda value: value, first)
            elif not self.computed(name, vector, *map(scalar, row[2:])):
                assert name in self.given, f"a line that no other line explains: {name}"
            if vector and " · " not in name:
                self.last = self.known[re.split(r",| of | = ", name)[0]] = vector
        return self.known

    def computed(self, name: str, vector: Vector, other: Printed, bias: Printed, result: Printed) -> bool:
        known = self.known
        if " · " in name:
            check(result, product, *known[name.split(" · ")[0]], *vector, other, bias)
            self.first = result
        elif match := re.fullmatch(r"mean of (.+)", name):
            check(result, lambda *xs: sum(xs) / self.width, *known[match[1]], other)
            known["mean"] = [result]
        elif match := re.fullmatch(r"(.+) − mean", name):
            each(vector, lambda x, m: x - m, known[match[1]], known["mean"] * len(vector))
            known["centred"] = vector
        elif match := re.fullmatch(r"(deviation|root mean square) of (.+)", name):
            numbers_of = known["centred"] if match[1] == "deviation" else known[match[2]]
            check(result, self.deviation, *numbers_of, other)
            known["deviation"] = [result]
        elif match := re.fullmatch(r"\w, (.+) normalised", name):
            centred = known.pop("centred", known[match[1]])
            shift = known.pop("shift", [ZERO] * len(vector))
            deviation = known["deviation"] * len(vector)
            each(vector, lambda x, d, g, b: x / d * g + b, centred, deviation, known["gain"], shift)
        elif match := re.fullmatch(r"h̃? = ([\w-]+)\((\w)\)( × u)?", name):
            function, gated = ACTIVATIONS[match[1]], bool(match[3])
            each(vector, lambda g, u: function(g) * (u if gated else 1.0), known[match[2]], known["u"])
        elif match := re.fullmatch(r"length of (\w) = √\(squares\)", name):
            check(result, lambda *xs: math.sqrt(sum(x * x for x in xs[:-1]) + xs[-1]), *known[match[1]], other)
            known["length"] = [result]
        elif name == "β":
            known["β"] = [result]
        elif match := re.fullmatch(r"(β × )?(\w) ÷ length", name):
            beta = known["β"] if match[1] else [Printed(1.0)]
            each(vector, lambda x, n, b: b * x / n, known[match[2]], known["length"] * len(vector), beta * len(vector))
        elif (match := re.fullmatch(r"(.+) \+ (\w)", name)) and match[1] in known:
            each(vector, lambda a, b: a + b, known[match[1]], known[match[2]])
        elif name in ("output of the block", "the same, by the model"):
            assert vector == self.last
        else:
            return False
        return True

    def deviation(self, *values: float) -> float:
        *xs, other = values
        return math.sqrt((sum(x * x for x in xs) + other) / self.width + self.epsilon)


def check_products(table: Table) -> dict[str, Printed]:
    """A vector times a vector of each key."""
    (_, first, *_), *rows = table.rows
    for _, vector, other, result in rows:
        check(scalar(result), product, *numbers(first), *numbers(vector), scalar(other), ZERO)
    return {str(name).split(", ", 1)[1]: scalar(result) for name, *_, result in rows}


def check_softmax(table: Table, products: Sequence[dict[str, Printed]]) -> dict[str, Printed]:
    """Steps 3 and 4: the sum of the terms, divided, plus the bias; softmax."""
    terms = len(products)
    names = [name.replace("\n", " ") for name in table.columns]
    divided = re.fullmatch(r"step 3: .* ÷ ([\d.]+)", names[terms + 1])
    logits: list[Printed | None] = []
    for word, *cells in table.rows:
        found = [scalar(cell) for cell in cells[:terms] if cell != "masked"]
        assert found == [one[str(word)] for one in products][: len(found)]
        at, logit, now = terms, found[0] if found else None, [*found]
        if divided:
            if cells[at] != "masked":
                logit = scalar(cells[at])
                check(logit, lambda *xs: sum(xs) / float(divided[1]), *found)
                now = [logit]
            at += 1
        if names[at + 1].startswith("bias") and cells[at + 1] != "masked":
            logit = scalar(cells[at + 1])
            check(logit, lambda *xs: sum(xs), *now, scalar(cells[at]))
        logits.append(None if "masked" in cells else logit)
    seen = [one for one in logits if one is not None]
    for (_, *cells), logit in zip(table.rows, logits):
        if logit is None:
            assert float(str(cells[-1])) == 0
        else:
            check(scalar(cells[-1]), lambda x, *xs: math.exp(x) / sum(map(math.exp, xs)), logit, *seen)
    return {str(word): scalar(weight) for word, *_, weight in table.rows}


def check_output(table: Table, weights: dict[str, Printed]) -> Vector:
    """Steps 5 and 6: weight × value, and the sum."""
    *rows, (last, _, _, total) = table.rows
    assert last == "step 6: sum"
    for word, weight, value, weighted in rows:
        assert scalar(weight) == weights[str(word)]
        each(numbers(weighted), lambda v, w: v * w, (values := numbers(value)), [scalar(weight)] * len(values))
    each(numbers(total), lambda *xs: sum(xs), *(numbers(weighted) for *_, weighted in rows))
    return numbers(total)


def check_block(tables: Sequence[Table], head: int, word: str) -> None:
    """All tables of a block, each from the one before."""
    one, *steps, softmaxed, summed, heads, joined, rest = tables
    given = ("x, input of the block", "gain", "shift", "u of the score", "v of the score")
    known = Checker(one, given).run()
    if "tanh" in steps[-1].title:
        inputs = {str(name): numbers(vector) for name, vector in steps.pop(0).rows}
        for name, vector, *_ in steps[0].rows[1:]:
            _, key = str(name).split(", ", 1)
            each(numbers(vector), lambda q, k: math.tanh(q + k), inputs["Wq"], inputs[f"Uk, {key}"])
        assert inputs["Wq"] == known["Wq"]
        assert inputs[f"Uk, {word}"] == known["Uk"]
    else:
        (name, query, *_), *keys = steps[0].rows
        assert numbers(query) == known[str(name)]
        own = next(row for row in keys if str(row[0]).endswith(f", {word}"))
        each(numbers(own[1]), lambda k: k, known[str(own[0]).split(", ")[0]])
    weights = check_softmax(softmaxed, [check_products(table) for table in steps])
    output = check_output(summed, weights)
    for name, *cells in heads.rows:
        assert scalar(cells[head]) == weights[str(name)]
    of_head = next(row for row in joined.rows if row[0] == f"head {head}")
    each(numbers(of_head[1]), lambda value: value, output)
    *products, total = joined.rows
    for name, vector, column, other, result in products:
        if str(name).startswith("head "):
            check(scalar(result), product, *numbers(vector), *numbers(column), scalar(other), ZERO)
    check(scalar(total[-1]), lambda *xs: sum(xs), *(scalar(row[-1]) for row in products))
    known = Checker(rest, ("x, input of the block", "a, output of attention", "gain", "shift")).run()
    check(known["a"][0], lambda value: value, scalar(total[-1]))


SHAPES = {
    "pre-norm": TINY,
    "post-norm": replace(TINY, norm_place="post", positions="sinusoidal", activation="relu"),
    "t5": replace(
        TINY, positions="t5", norm="rms", gated=True, activation="gelu-tanh", attention_bias=False, feed_bias=False
    ),
    "t5, no division": replace(TINY, positions="t5", score="dot"),
    "relative": replace(TINY, positions="relative"),
    "additive": replace(TINY, score="additive"),
    "general": replace(TINY, score="general", activation="silu"),
    "cosine": replace(TINY, score="cosine"),
    "dot": replace(TINY, score="dot", residual=False, norm_place="post"),
    "one head": replace(TINY, heads=1, layers=1),
    "narrow heads": replace(TINY, heads=8),
    "more heads than are shown": replace(TINY, heads=16),
}


@pytest.mark.parametrize(
    ("name", "mask"), [*((name, CAUSAL) for name in SHAPES), ("t5", EVERYTHING), ("relative", EVERYTHING)]
)
def test_every_line_of_a_block_follows_from_the_printed_lines(name: str, mask: Mask) -> None:
    torch.manual_seed(0)
    network = TinyTransformer(SHAPES[name], 11, mask).double()
    for parameter in network.parameters():  # biases, gains and T5's table start at numbers that hide mistakes
        parameter.data += 0.3 * torch.randn_like(parameter)
    with torch.no_grad(), record_block_calls(network) as calls:
        network(torch.arange(len(KEYS))[None])
        blocks = [compute_by_hand(call) for call in calls]
    head, query = min(SHAPES[name].heads, MAX_HEADS) - 1, 2
    tables = block_tables(blocks[-1], "Layer", head, query, KEYS)
    check_block(tables, head, KEYS[query])
    titles = " ".join(table.title for table in tables)
    assert ("q·k" not in titles) == (name in ("additive", "general", "cosine"))


def test_transformer_xl_shows_the_two_terms_of_its_score() -> None:
    torch.manual_seed(0)
    config = GptConfig(vocab=11, width=16, heads=2, layers=2, inner=24, positions="xl", memory=4, dropout=0.0)
    network = config.build().double().eval()
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    with torch.no_grad(), record_block_calls(network) as calls:
        network.features(torch.arange(len(KEYS))[None])
        block = compute_by_hand(calls[-1])
    assert len(block.heads[0][0].keys) == len(KEYS)
    check_block(block_tables(block, "Layer", 1, 3, KEYS), 1, KEYS[3])


def test_a_wrong_digit_is_found() -> None:
    torch.manual_seed(0)
    network = TinyTransformer(TINY, 11, CAUSAL).double()
    with torch.no_grad(), record_block_calls(network) as calls:
        network(torch.arange(len(KEYS))[None])
        tables = block_tables(compute_by_hand(calls[0]), "Layer", 0, 2, KEYS)
    check_block(tables, 0, KEYS[2])
    rest = tables[-1]
    for at, row in enumerate(rest.rows):
        for column in (1, 4):
            if not isinstance(cell := row[column], str) or str(row[0]).startswith("x, "):
                continue
            value = float(re.findall(r"-?\d+\.\d+", cell)[0])
            wrong = cell.replace(f"{value:.4f}", f"{value + 0.1:.4f}", 1)
            rows = [*rest.rows[:at], [*row[:column], wrong, *row[column + 1 :]], *rest.rows[at + 1 :]]
            with pytest.raises(AssertionError):
                check_block([*tables[:-1], replace(rest, rows=rows)], 0, KEYS[2])


def test_every_line_of_the_topic() -> None:
    tables = [section for section in run(AttentionOptions(steps=2, head=1)).sections if isinstance(section, Table)]
    textbook, model = tables[:3], tables[3:]
    products = check_products(textbook[0])
    assert [one.value for one in products.values()] == [112.0, 96.0]
    check_output(textbook[2], check_softmax(textbook[1], [products]))
    check_block(model, 1, SENTENCE.split()[-1])


def check_read(tables: Sequence[Table], query: str) -> None:
    """All tables of one read of a recurrent decoder, each from the one before."""
    one, *steps, softmaxed, summed = [table for table in tables if table.title != "The layer after attention"]
    key = next((str(row[0]) for row in one.rows if str(row[0]).startswith("k, ")), "")
    known = Checker(one, (f"q, the query {query}", key)).run()
    word = key.removeprefix("k, the key h of ")
    if "tanh" in steps[-1].title:
        inputs = {str(name): numbers(vector) for name, vector in steps.pop(0).rows}
        for name, vector, *_ in steps[0].rows[1:]:
            each(
                numbers(vector),
                lambda q, k: math.tanh(q + k),
                inputs["Wq"],
                inputs[f"Uk, {str(name).split(', ', 1)[1]}"],
            )
        assert (inputs["Wq"], inputs[f"Uk, {word}"]) == (known["Wq"], known["Uk"])
    else:
        (name, vector, *_), *keys = steps[0].rows
        assert numbers(vector) == known[str(name)]
        for own in (row for row in keys if word and str(row[0]).endswith(f", {word}")):
            each(numbers(own[1]), lambda k: k, known[str(own[0]).split(", ")[0]])
    context = check_output(summed, check_softmax(softmaxed, [check_products(table) for table in steps]))
    for table in tables:
        if table.title == "The layer after attention":
            found = Checker(table, ("c, the context", "s, the state s₍ₜ₎", "z, all of them joined")).run()
            each(found["c"], lambda value: value, context)
            assert found["z"] == found["c"]  # the first numbers
            each(found["s"], lambda value: value, known["q"])


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
@pytest.mark.parametrize("score", ["additive", "dot", "scaled_dot", "general", "cosine", "location"])
def test_every_line_of_a_recurrent_decoder(decoder: str, score: str) -> None:
    result = run(AttentionOptions(decoder=decoder, score=score, steps=0, word=2))
    assert result.data["query"] == ("s₍ₜ₋₁₎" if decoder == "bahdanau" else "s₍ₜ₎")
    assert result.data["difference"] < 1e-12
    tables = [section for section in result.sections if isinstance(section, Table)]
    assert ("The layer after attention" in [table.title for table in tables]) == (decoder != "bahdanau")
    check_read(tables, result.data["query"])
    assert isinstance(result.sections[0], Text)
    assert "W^O" not in result.sections[0].text  # no block of a Transformer is shown
    titles = [table.title for table in tables]
    assert sum(title.endswith("steps 3 and 4") for title in titles) == (score == "scaled_dot")


def test_a_wrong_digit_of_a_recurrent_decoder_is_found() -> None:
    result = run(AttentionOptions(decoder="luong", steps=0))
    tables = [section for section in result.sections if isinstance(section, Table)]
    check_read(tables, "s₍ₜ₎")
    softmaxed = next(table for table in tables if table.title.endswith(", step 4"))
    (word, logit, weight), *rest = softmaxed.rows  # an additive score is not divided, so there is no step 3
    wrong = replace(softmaxed, rows=[[word, logit, f"{float(str(weight)) + 0.01:.4f}"], *rest])
    with pytest.raises(AssertionError):
        check_read([wrong if table is softmaxed else table for table in tables], "s₍ₜ₎")
