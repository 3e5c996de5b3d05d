"""The pass that a verb records on the caller's tape: one pass over the inputs and the outputs."""

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
    """Record one batch of all pairs in their order, with captions, if the caller records the model.

    The verb's own batches, in another order, are not recorded, so item i of the tape is pair i. A tape holds one batch:
    pairs that do not fit in one are refused, and so is a second pass.
    """
    recorders = [module.recorder for module in attentions(model.module).values() if module.recorder is not None]
    if not recorders or not pairs:
        return
    tape, rows = recorders[0].tape, recorders[0].rows
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
