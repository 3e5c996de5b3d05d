"""What a verb leaves on the tape of whoever records the model: one pass over what was given and answered."""

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.batches import collate
from regard.errors import UserError
from regard.recording import attentions
from regard.verbs.forced import row_of
from regard.verbs.loaded import IdPair, Loaded
from regard.verbs.parts import axes, kept, parts, path_of


@torch.no_grad()
def record_forced(model: Loaded, pairs: Sequence[IdPair], batch_tokens: int) -> None:
    """One batch of all pairs in their order, each with its captions, where the caller records the model.

    A verb does its own work in batches of its own order, unseen by that tape; so item i of the tape is pair i. A tape
    holds one batch: what would not fit in one is refused, and so is a second pass.
    """
    taps = [module.tap for module in attentions(model.module).values() if module.tap is not None]
    if not taps or not pairs:
        return
    tape, rows = taps[0].tape, taps[0].rows
    if len(tape):
        raise UserError("record: the tape already holds a pass; open another `with record(model)` for each call.")
    encoded = [row_of(model, pair) for pair in pairs]
    lengths = {name: np.array([len(row[name]) for row in encoded]) for name in model.fields}
    size = len(pairs) * max(int(axis.max()) for axis in model.task.widths(lengths).values())
    if size > batch_tokens and len(pairs) > 1:
        raise UserError(
            f"record: {len(pairs)} texts come to {size:,} padded tokens, and a tape holds one batch of at most "
            f"batch_tokens={batch_tokens:,}; pass fewer lines at a time, or raise it."
        )
    with model.autocast():
        model.module(collate(encoded, model.task).to(model.device))
    items = [axes(model, pair) for pair in pairs]
    most = {part: max(len(item[part].rows) for item in items) for part in items[0]}
    part_of = parts(model.module)
    named = {name: part_of[path_of(name)] for name in tape}
    tape.captions = [{name: kept(item[part], rows, most[part]) for name, part in named.items()} for item in items]
