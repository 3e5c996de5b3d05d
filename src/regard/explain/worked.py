"""The lines of a block computed by hand, as tables: every number follows from numbers that are printed before it.

Of a vector, only the first numbers are printed. A product of two vectors is printed as the sum of the products that are
not shown (other) and the result; a product with a matrix is shown for the first column of the matrix.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.explain.by_hand import AttentionSteps, BlockByHand, factors
from regard.layers.transformer import ACTIVATIONS
from regard.report.sections import Cell, Table
from regard.scores import Additive, Cosine, Dot, General, Location, XLRelative

NUMBERS = 3  # of a vector
DECIMALS = 4  # at least; small numbers have more
MAX_HEADS = 12  # of a table
FORMULAS = {  # of ACTIVATIONS
    "relu": "relu(u) = max(u, 0)",
    "gelu": "gelu(u) = u · Φ(u), where Φ is the standard normal distribution function",
    "gelu-tanh": "gelu-tanh(u) = u ÷ 2 · (1 + tanh(√(2 ÷ π) · (u + 0.044715 · u³)))",
    "gelu-sigmoid": "gelu-sigmoid(u) = u ÷ (1 + exp(−1.702 · u))",
    "silu": "silu(u) = u ÷ (1 + exp(−u))",
    "tanh": "tanh",
}
COLUMN = (
    f"Only the first {NUMBERS} numbers of a vector are shown. A line “x · W” has the first column of the matrix W: "
    "multiply the numbers of x with it one by one, and add the products, “other” (the sum of the products that are not "
    "shown) and “bias”."
)
PRODUCT = f"{COLUMN} The result is the first number of the next line. All numbers are rounded."


def number(value: Tensor | float, largest: float = 1.0) -> str:
    """A number with four decimals; with more, if ``largest``, the largest number beside it, is small."""
    decimals = DECIMALS if largest >= 0.01 or largest == 0 else min(12, 2 - math.floor(math.log10(largest)))
    return f"{value.item() if isinstance(value, Tensor) else value:.{decimals}f}"


def vector(values: Tensor, largest: float | None = None) -> str:
    """The first numbers of a vector, aligned."""
    shown = values[:NUMBERS]
    size = _largest(shown) if largest is None else largest
    return " ".join(f"{number(each, size):>7}" for each in shown) + (" …" if len(values) > NUMBERS else "")


def _largest(*values: Tensor | None) -> float:
    """The largest finite absolute value, of which the number of decimals depends."""
    every = torch.cat([each.flatten() for each in values if each is not None])
    return every[every.isfinite()].abs().max().item()


def other(first: Tensor, second: Tensor) -> Tensor:
    """The sum of the products that are not shown."""
    return (first * second)[NUMBERS:].sum()


class Derivation:
    """The rows of a table in which each line follows from the lines above it."""

    columns = ("", f"first {NUMBERS} numbers", "other", "bias", "result")

    def __init__(self) -> None:
        self.rows: list[list[Cell]] = []

    def vector(self, name: str, values: Tensor) -> None:
        self.rows.append([name, vector(values), None, None, None])

    def result(self, name: str, hidden: Tensor | None, result: Tensor) -> None:
        """A number that is computed from the vector above and from the sum of what is not shown."""
        self._add(name, None, (hidden, None, result))

    def _add(self, name: str, shown: str | None, cells: Sequence[Tensor | None]) -> None:
        size = _largest(*cells)
        self.rows.append([name, shown, *(None if cell is None else number(cell, size) for cell in cells)])

    def product(self, name: str, x: Tensor, matrix: nn.Linear, row: int = 0) -> None:
        """x times a row of ``matrix.weight``, which is a column of the matrix in x · W."""
        self.column(name, x, matrix.weight[row], None if matrix.bias is None else matrix.bias[row])

    def column(self, name: str, x: Tensor, column: Tensor, bias: Tensor | None) -> None:
        """x times a column of a matrix, plus its bias."""
        result = (x * column).sum() + (0.0 if bias is None else bias)
        self._add(name, vector(column), (other(x, column), bias, result))

    def norm(self, name: str, result: str, x: Tensor, norm: nn.Module) -> None:
        """Layer norm or RMS norm of x (width,); its result is a new vector."""
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        epsilon = 0.0 if norm.eps is None else norm.eps
        scale = f"root mean square of {name}"
        if isinstance(norm, nn.LayerNorm):
            self.result(f"mean of {name}", x[NUMBERS:].sum(), x.mean())
            x, scale = x - x.mean(), f"deviation of {name}"
            self.vector(f"{name} − mean", x)
        deviation = (x.square().mean() + epsilon).sqrt()
        self.result(scale, other(x, x), deviation)
        self.vector("gain", norm.weight)
        shift = norm.bias if isinstance(norm, nn.LayerNorm) else None
        if shift is not None:
            self.vector("shift", shift)
        self.vector(f"{result}, {name} normalised", norm(x))


def block_tables(block: BlockByHand, title: str, head: int, query: int, keys: Sequence[str]) -> list[Table]:
    """All lines of a block for one query: the six steps in one head, then all heads and the rest of the block."""
    steps, shown = block.heads[head][query], block.heads[:MAX_HEADS]
    weights = [[key, *(number(each[query].weights[at]) for each in shown)] for at, key in enumerate(keys)]
    return [
        step_one(block, head, query, f"{title}, width {len(steps.query)}, step 1"),
        *steps_two_to_six(title, steps, keys, block.block.attention.read.score),
        Table(
            f"Weights for the same query, heads 0 to {len(shown) - 1} of {len(block.heads)}",
            ["", *(f"H{at}" for at in range(len(shown)))],
            weights,
            "head=N shows how the weights of another head are computed.",
        ),
        heads_joined(block, query, "The outputs of all heads times W^O, for the same query"),
        rest_of_block(block, query, "The rest of the block, for the same query"),
    ]


def step_one(block: BlockByHand, head: int, query: int, title: str) -> Table:
    """Step 1 for one word: its query, key and value in one head, from the input of the block."""
    attention, lines = block.block.attention, Derivation()
    width, states = attention.head_width, block.states[query]
    lines.vector("x, input of the block", block.x[query])
    name, notes = "x", [PRODUCT]
    if block.block.pre:
        name = "n"
        lines.norm("x", "n", block.x[query], block.block.attention_norm)
        notes.append(_norm_note(block.block.attention_norm))
    raw = attention.qkv(states)
    parts = {}
    for at, part in enumerate("qkv"):
        first = at * attention.inner + head * width
        parts[part] = raw[first : first + width]
        lines.product(f"{name} · W_{part.upper()}", states, attention.qkv, first)
        lines.vector(f"{part}, {('query', 'key', 'value')[at]}", parts[part])
    compared(lines, attention.read.score, parts["q"], parts["k"], head)
    return Table(title, Derivation.columns, lines.rows, " ".join(notes))


def compared(lines: Derivation, score: nn.Module, q: Tensor, k: Tensor, head: int) -> None:
    """What a score computes from the query and the key before it compares them."""
    match score:
        case General():
            lines.product("k · W of the score", k, score.key)
            lines.vector("Wk", score.keys(k))
        case Cosine():
            for name, values, beta in (("q", q, score.sharpness), ("k", k, torch.ones(()))):
                lines.result(f"length of {name} = √(squares)", other(values, values), values.norm())
                if name == "q":
                    lines.result("β", None, beta)
                label = "β × q ÷ length" if name == "q" else "k ÷ length"
                lines.vector(label, beta * values / values.norm())
        case XLRelative():
            for name, values in (("u", score.content[head]), ("v", score.position[head])):
                lines.vector(f"{name} of the score", values)
                lines.vector(f"q + {name}", q + values)
        case Additive():
            lines.product("q · W of the score", q, score.query)
            lines.vector("Wq", score.query(q))
            lines.product("k · U of the score", k, score.key)
            lines.vector("Uk", score.keys(k))


def _norm_note(norm: nn.Module) -> str:
    """How to compute the lines of a norm."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    (width,) = norm.normalized_shape
    if isinstance(norm, nn.LayerNorm):
        return (
            f"“mean of x” is (the shown numbers of x + other) ÷ {width}. “deviation of x” is √((the squares of the "
            f"shown numbers of x − mean + other) ÷ {width} + {norm.eps}). “x normalised” is (x − mean) ÷ deviation × "
            f"gain{'' if norm.bias is None else ' + shift'}."
        )
    return (
        f"“root mean square of x” is √((the squares of the shown numbers of x + other) ÷ {width} + {norm.eps}). “x "
        "normalised” is x ÷ root mean square × gain."
    )


def names_of(score: nn.Module) -> tuple[str, str, str]:
    """The names of the query, of the keys and of their product in the tables of a score."""
    match score:
        case General():
            return "q", "Wk", "q·Wk"
        case Cosine():
            return "β × q ÷ length", "k ÷ length", "β cos(q, k)"
        case XLRelative():
            return "q + u", "k", "(q + u)·k"
        case Additive():
            return "v of the score", "tanh(Wq + Uk)", "v·tanh(Wq + Uk)"
        case Location():
            return "q", "row of W", "number of Wq"
    return "q", "k", "q·k"


def steps_two_to_six(
    title: str, steps: AttentionSteps, words: Sequence[str], score: nn.Module | None = None
) -> list[Table]:
    """Steps 2 to 6 with a row for each key, as tables that fit a terminal."""
    score = Dot() if score is None else score
    query, key, product = names_of(score)
    tables = []
    if steps.v is not None:
        inputs = [["Wq", vector(steps.query)], *([f"Uk, {word}", vector(k)] for word, k in zip(words, steps.keys))]
        tables.append(Table(f"{title}, step 2: Wq, and Uk of every key", ["", f"first {NUMBERS} numbers"], inputs))
    first, second = factors(steps.query, steps.keys, steps.v)
    tables.append(_products(f"{title}, step 2: {product}", words, (query, first), (key, second), product))
    summands = [(product, steps.scores)]
    if steps.positions is not None:
        names = ("q + v", "Wr", "(q + v)·Wr") if isinstance(score, XLRelative) else ("q", "r", "q·r")
        vectors = (names[0], steps.positions.query), (names[1], steps.positions.vectors)
        tables.append(_products(f"{title}, step 2: {names[2]}, the term for the distance", words, *vectors, names[2]))
        summands.append((names[2], steps.positions.scores))
    logit = " + ".join(name for name, _ in summands)
    if steps.scale != 1.0:
        total = torch.stack([values for _, values in summands]).sum(dim=0) * steps.scale
        logit = f"{f'({logit})' if len(summands) > 1 else logit} ÷ {1 / steps.scale:.6g}"
        summands.append((f"step 3:\n{logit}", total))
    if steps.bias is not None:
        summands.append(("bias for the\ndistance", steps.bias))
    visible = (steps.scaled > -math.inf).tolist()
    columns = ["", *(name for name, _ in summands)]
    if steps.bias is not None or (steps.scale == 1.0 and len(summands) > 1):
        columns.append("step 3:\nsum")
    rows: list[list[Cell]] = []
    for at, word in enumerate(words):
        cells = [number(values[at], _largest(values)) for _, values in summands]
        cells += [number(steps.scaled[at])] * (len(columns) > len(cells) + 1)
        if not visible[at]:
            cells[-1] = "masked"
        rows.append([word, *cells, number(steps.weights[at])])
    third = any("step 3" in name for name in columns)
    note = "" if third else "This score has no step 3: it is not divided by a number."
    tables.append(
        Table(f"{title}, {'steps 3 and 4' if third else 'step 4'}", [*columns, "step 4:\nsoftmax"], rows, note)
    )
    weighted: list[list[Cell]] = [
        [word, number(weight), vector(value, _largest(steps.values)), vector(part, _largest(steps.values))]
        for word, weight, value, part in zip(words, steps.weights, steps.values, steps.weighted)
    ]
    weighted.append(["step 6: sum", None, None, vector(steps.output, _largest(steps.values))])
    columns = ["", "weight", "value", "step 5:\nweight × value"]
    return [*tables, Table(f"{title}, steps 5 and 6", columns, weighted)]


def _products(
    title: str, words: Sequence[str], one: tuple[str, Tensor], many: tuple[str, Tensor], product: str
) -> Table:
    """A vector times a vector of each key."""
    rows: list[list[Cell]] = [[one[0], vector(one[1]), None, None]]
    size, product_size = _largest(many[1]), _largest(many[1] @ one[1])
    for word, values in zip(words, many[1]):
        products = (number(each, product_size) for each in (other(one[1], values), one[1] @ values))
        rows.append([f"{many[0]}, {word}", vector(values, size), *products])
    return Table(title, ["", f"first {NUMBERS} numbers", "other", product], rows)


def heads_joined(block: BlockByHand, query: int, title: str) -> Table:
    """The outputs of all heads times their rows of W^O: the first number of the output of attention."""
    attention, rows, rest = block.block.attention, list[list[Cell]](), torch.zeros(())
    parts = attention.out.weight[0].unflatten(0, (attention.heads, -1))  # (H, D)
    for head, (steps, column) in enumerate(zip(block.heads, parts)):
        output = steps[query].output
        product = output @ column
        if head < MAX_HEADS:
            hidden = other(output, column)
            rows.append([f"head {head}", vector(output), vector(column), number(hidden), number(product)])
        else:
            rest = rest + product
    if attention.heads > MAX_HEADS:
        rows.append([f"heads {MAX_HEADS} to {attention.heads - 1}", None, None, None, number(rest)])
    if attention.out.bias is not None:
        rows.append(["bias", None, None, None, number(attention.out.bias[0])])
    rows.append(["sum", None, None, None, number(block.projected[query][0])])
    return Table(title, ["", "output of the head", "column of W^O", "other", "product"], rows)


def rest_of_block(block: BlockByHand, query: int, title: str) -> Table:
    """From the output of attention to the output of the block: residual connections, norms and feed-forward layer."""
    module, lines, feed = block.block, Derivation(), block.block.feed
    lines.vector("x, input of the block", block.x[query])
    lines.vector("a, output of attention", block.projected[query])
    name = "x + a" if module.residual else "a"
    if module.residual:
        lines.vector("x + a", block.added[query])
    if module.pre:
        lines.norm(name, "n", block.added[query], module.feed_norm)
    else:
        lines.norm(name, "n", block.added[query], module.attention_norm)
    activation = next(name for name, function in ACTIVATIONS.items() if function is feed.activation)
    z = block.feed_input[query]
    lines.product("n · W₁", z, feed.up)
    lines.vector("u, feed-forward layer", feed.up(z))
    if feed.gate is not None:
        lines.product("n · G", z, feed.gate)
        lines.vector("g, gate", feed.gate(z))
    gated = f"h = {activation}(u)" if feed.gate is None else f"h = {activation}(g) × u"
    lines.vector(gated, block.inner[query])
    lines.product("h · W₂", block.inner[query], feed.down)
    lines.vector("f, output of the layer", block.fed[query])
    into = name if module.pre else "n"
    last = f"{into} + f" if module.residual else "f"
    if module.residual:
        lines.vector(last, block.summed[query])
    if not module.pre:
        lines.norm(last, "y", block.summed[query], module.feed_norm)
    lines.vector("output of the block", block.output[query])
    lines.vector("the same, by the model", block.expected[query])
    return Table(title, Derivation.columns, lines.rows, f"{_norm_note(module.feed_norm)} {FORMULAS[activation]}.")
