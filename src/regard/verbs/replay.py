"""What a verb leaves on the tape of whoever records the model: one pass over what was given and answered."""

from collections.abc import Sequence

import torch

from regard.data.batches import FRAMES, Pair, collate
from regard.data.tokenizers import BOS
from regard.errors import UserError
from regard.models import Structured
from regard.record import attentions
from regard.verbs.loaded import Loaded


@torch.no_grad()
def replay(model: Loaded, pairs: Sequence[Pair], batch_tokens: int) -> None:
    """One batch of all pairs in their order, each with its captions, where the caller records the model.

    A verb does its own work in batches of its own order, unseen by that tape; so item i of the tape is pair i. A tape
    holds one batch: what would not fit in one is refused, and so is a second pass.
    """
    taps = [module.tap for module in attentions(model.module).values() if module.tap is not None]
    if not taps or not pairs:
        return
    tape, kept = taps[0].tape, taps[0].rows
    if len(tape):
        raise UserError("record: the tape already holds a pass; open another `with record(model)` for each call.")
    size = len(pairs) * max(max(len(source), len(target) + 1) for source, target in pairs)
    if size > batch_tokens and len(pairs) > 1:
        raise UserError(
            f"record: {len(pairs)} texts come to {size:,} padded tokens, and a tape holds one batch of at most "
            f"batch_tokens={batch_tokens:,}; pass fewer lines at a time, or raise it."
        )
    with model.autocast():
        model.module(collate(pairs, FRAMES[model.module.task]).to(model.device))
    tape.captions = [captions(model, pair) for pair in pairs]
    if kept is not None:
        most = max(len(queries) for queries, _ in tape.captions)
        rows = [row for row in kept if 0 <= row < most]
        tape.captions = [
            ([queries[row] if row < len(queries) else "" for row in rows], keys) for queries, keys in tape.captions
        ]


def captions(model: Loaded, pair: Pair) -> tuple[list[str], list[str]]:
    """What to write beside the queries and the keys of a pair: who looks, and what at."""
    source, target = pair
    if isinstance(model.module, Structured):
        assert model.source_tokenizer is not None
        looks = [f"look {number}" for number in range(1, model.module.config.hops + 1)]
        return looks, model.source_tokenizer.pieces(source)
    columns, rows = model.captions(source, target)
    if model.source_tokenizer is None:  # a language model looks at what it has read
        columns = model.target_tokenizer.pieces([BOS, *target])
    return rows, columns
