"""What a verb leaves on the tape of whoever records the model: one pass over what was given and answered."""

from collections.abc import Sequence

import torch

from regard.data.batches import Pair, collate
from regard.errors import UserError
from regard.recording import attentions
from regard.verbs.forced import frame_of
from regard.verbs.loaded import Loaded
from regard.verbs.parts import axes, kept, parts, path_of


@torch.no_grad()
def record_forced(model: Loaded, pairs: Sequence[Pair], batch_tokens: int) -> None:
    """One batch of all pairs in their order, each with its captions, where the caller records the model.

    A verb does its own work in batches of its own order, unseen by that tape; so item i of the tape is pair i. A tape
    holds one batch: what would not fit in one is refused, and so is a second pass.
    """
    recorders = [module.recorder for module in attentions(model.module).values() if module.recorder is not None]
    if not recorders or not pairs:
        return
    tape, rows = recorders[0].tape, recorders[0].rows
    if len(tape):
        raise UserError("record: the tape already holds a pass; open another `with record(model)` for each call.")
    size = len(pairs) * max(max(len(source), len(target) + 1) for source, target in pairs)
    if size > batch_tokens and len(pairs) > 1:
        raise UserError(
            f"record: {len(pairs)} texts come to {size:,} padded tokens, and a tape holds one batch of at most "
            f"batch_tokens={batch_tokens:,}; pass fewer lines at a time, or raise it."
        )
    with model.autocast():
        model.module(collate(pairs, frame_of(model)).to(model.device))
    items = [axes(model, pair) for pair in pairs]
    most = {part: max(len(item[part].rows) for item in items) for part in items[0]}
    part_of = parts(model.module)
    named = {name: part_of[path_of(name)] for name in tape}
    tape.captions = [{name: kept(item[part], rows, most[part]) for name, part in named.items()} for item in items]
