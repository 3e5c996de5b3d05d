"""The steps of a small recurrent network: every state and every probability, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

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
    config = model.module.config
    small = model.task.head == "next" and config.width <= WIDEST and config.learns_by == "gradients"
    if not small or model.target_tokenizer.size > MOST_TOKENS:
        return []
    tokenizer = model.target_tokenizer
    ids = [*model.opening, *tokenizer.encode(joined(examples[:1]))][: MOST_STEPS + 1]
    if len(ids) < 2:
        return []
    read = torch.tensor([ids[:-1]])
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
