"""The steps of a small recurrent network: every state and every probability, as a table."""

from typing import Any

import torch

from regard.data.streams import joined
from regard.report.sections import Table
from regard.verbs.loaded import Loaded

WIDEST, MOST_TOKENS, MOST_STEPS = 8, 16, 12  # of a model and a text whose steps are shown


def step_table(model: Loaded, examples: Any) -> Table | None:
    """What a language model computes at each token of a text: its state, and the probability of each next token.

    None for a model or a text that is too large for a table.
    """
    config = model.module.config
    small = model.task.head == "next" and config.width <= WIDEST and config.learns_by == "gradients"
    if not small or model.target_tokenizer.size > MOST_TOKENS:
        return None
    tokenizer = model.target_tokenizer
    ids = [*model.opening, *tokenizer.encode(joined(examples[:1]))][: MOST_STEPS + 1]
    read = torch.tensor([ids[:-1]])
    if read.shape[1] < 1:
        return None
    states, probabilities = model.states(read)[0], model.logits(read)[0].float().softmax(-1)
    special = sorted({*tokenizer.special_tokens.ids, *model.forbidden})
    letters = [token for token in range(tokenizer.size) if token not in special]
    names = tokenizer.pieces(range(tokenizer.size))
    rows = [
        [
            names[token],
            *(f"{number:.2f}" for number in state.tolist()),
            *(f"{chances[letter]:.3f}" for letter in letters),
            f"{float(chances[special].sum()):.3f}",
            names[int(chances.argmax())],
            names[target],
        ]
        for token, target, state, chances in zip(ids, ids[1:], states, probabilities)
    ]
    columns = [
        "reads",
        *(f"h{number}" for number in range(1, config.width + 1)),
        *(f"p({names[letter]})" for letter in letters),
        "p(rest)",
        "best",
        "target",
    ]
    note = (
        "h is the state after the token is read; p is the probability of the next token, computed from h. p(rest) is "
        f"that of the {len(special)} special tokens together: {', '.join(names[token] for token in special)}."
    )
    return Table("Every step: states and probabilities", columns, rows, note)
