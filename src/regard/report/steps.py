"""The steps of a small language model as tables: every state, every probability and, if it has gates, every gate."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from regard.data.streams import joined
from regard.report.sections import Cell, Table
from regard.verbs.loaded import Loaded

WIDEST, MOST_TOKENS, MOST_STEPS = 8, 16, 12  # of a model and a text whose steps are shown
TERMINAL = 11  # the most columns that a terminal of 80 letters shows on one line


def compute_steps(model: Loaded, examples: Any) -> list[dict[str, Cell]]:
    """What a language model computes at each token of a text: its state, and the probability of each next token.

    Empty for a model or a text that is too large for a table.
    """
    ids = _shown_ids(model, examples)
    if not ids:
        return []
    tokenizer, read = model.target_tokenizer, torch.tensor([ids[:-1]])
    states, probabilities = model.states(read)[0], model.logits(read)[0].float().softmax(-1)
    special = sorted({*tokenizer.special_tokens.ids, *model.forbidden})
    letters = [token for token in range(tokenizer.size) if token not in special]
    names = tokenizer.pieces(range(tokenizer.size))
    return [
        {
            "reads": names[token],
            **{f"h{number}": value for number, value in enumerate(state.tolist(), 1)},
            **{f"p({names[letter]})": float(chances[letter]) for letter in letters},
            "p(rest)": float(chances[special].sum()),
            "best": names[int(chances.argmax())],
            "target": names[target],
        }
        for token, target, state, chances in zip(ids, ids[1:], states, probabilities)
    ]


@torch.no_grad()
def compute_gates(model: Loaded, examples: Any) -> list[dict[str, Cell]]:
    """The gates and the new state of each unit of the last recurrent layer at each token of a text.

    They are computed by the equations of the cell. Empty for a cell without gates, and where `compute_steps` is empty.
    """
    ids, module = _shown_ids(model, examples), cast(Any, model.module)
    if not ids or not module.config.gates:
        return []
    with model.autocast():
        trace = module.trace(torch.tensor([ids[:-1]], device=model.device))[-1]
    names, columns = model.target_tokenizer.pieces(ids), {name: trace[name][0].tolist() for name in module.config.gates}
    return [
        {"reads": names[at], "unit": unit + 1, **{name: values[at][unit] for name, values in columns.items()}}
        for at in range(len(ids) - 1)
        for unit in range(module.config.width)
    ]


def _shown_ids(model: Loaded, examples: Any) -> list[int]:
    """The first tokens of the first example; empty for a model or a text that is too large for a table."""
    config = model.module.config
    small = model.task.head == "next" and config.width <= WIDEST and config.learns_by == "gradients"
    if not small or model.target_tokenizer.size > MOST_TOKENS:
        return []
    ids = [*model.opening, *model.target_tokenizer.encode(joined(examples[:1]))][: MOST_STEPS + 1]
    return ids if len(ids) > 1 else []


def step_table(steps: Sequence[Mapping[str, Cell]]) -> Table:
    """The steps of a model, a row for each."""
    rows = [
        [
            f"{cell:.{2 if name.startswith('h') else 3}f}" if isinstance(cell, float) else cell
            for name, cell in each.items()
        ]
        for each in steps
    ]
    note = (
        "h is the state after the token is read; p is the probability of the next token, computed from h. "
        "p(rest) is that of all special tokens."
    )
    return Table("Every step: states and probabilities", list(steps[0]), rows, note)


def gate_table(gates: Sequence[Mapping[str, Cell]], meanings: Mapping[str, str]) -> Table:
    """The gates of a model, a row for each unit at each step."""
    rows = [[f"{cell:.3f}" if isinstance(cell, float) else cell for cell in each.values()] for each in gates]
    note = (
        f"{'. '.join(f'{name} is {meaning}' for name, meaning in meanings.items())}. “Before” is the same unit at the "
        "step before; at the first step it is 0. Of several layers, these are the units of the last."
    )
    return Table("Every step: the gates of each unit", list(gates[0]), rows, note)
