"""Subjects that a model answers token by token: translations, and the continuation of a text (`verbs/outcomes.py`)."""

from dataclasses import replace
from typing import Any, cast

import torch

from regard.data.fields import MASK
from regard.decode.state import NEG_INF
from regard.errors import UserError
from regard.objectives.objective import CausalModel
from regard.objectives.sequence import forced as features_of
from regard.recording import pause_recording
from regard.verbs.forced import batch_of, named_pieces
from regard.verbs.infilling import can_infill, with_sentinels
from regard.verbs.loaded import Loaded
from regard.verbs.outcomes import TOP, Candidate, Outcome, chosen_logps
from regard.verbs.search import Translation, translate


class Translated:
    """A source, and its best target."""

    def __init__(self, model: Loaded, text: str, beam: int) -> None:
        self.model, self.beam = model, beam
        self.text = with_sentinels(model, text, 1) if MASK in text and can_infill(model) else text
        self.original = self.search()
        assert model.source_tokenizer is not None
        if not self.original.source_tokens:
            raise UserError(f"{text!r:.60}: no token of the model; give a text of its words.")
        self.pair = self.original.source_tokens, self.original.tokens
        self.pieces = self.pieces_of(self.original)
        source = len(model.source_tokenizer.wrap_input(self.pair[0]))
        self.keys = {"encoder": source, "cross": source, "decoder": len(self.pair[1]) + 1}
        self.tokens = max(source, len(self.pair[1]) + 1)

    def search(self) -> Translation:
        """The best target by the present model."""
        with pause_recording(self.model.module):
            return translate(self.model, [self.text], beam=self.beam, align=False)[0]

    def pieces_of(self, found: Translation) -> list[str]:
        """The pieces of a target, with the end if it was generated."""
        pieces = self.model.captions(*([], found.tokens))[1]
        return pieces[: len(found.tokens) + (found.ended == "end")]

    def with_answer(self, one: Outcome, found: Translation) -> Outcome:
        """An outcome with the answer of a search."""
        same = found.tokens == self.original.tokens
        return replace(one, answer=found.text, same=same, pieces=self.pieces_of(found))

    def outcomes(self, copies: int) -> list[Outcome]:
        model, count = self.model, len(self.pieces)
        module, batch = cast(CausalModel, model.module), batch_of(model, [self.pair] * copies).to(model.device)
        with model.autocast():
            features, _ = features_of(module, batch)  # (B, T, W)
            targets, forbidden = batch["targets"][0, :count], torch.tensor(model.forbidden, device=model.device)
            found = []
            for row in features[:, :count]:
                logits = module.readout(row).float()
                logps = chosen_logps(model, logits.log_softmax(-1), targets)
                best = logits.index_fill(1, forbidden.long(), NEG_INF).argmax(-1)
                same = bool((best == targets).all())
                found.append(Outcome(self.original.text if same else "", same, logps, []))
        return found


class Continued:
    """A text that a language model predicts token by token, and the token after it."""

    def __init__(self, model: Loaded, text: str) -> None:
        (ids,), special = model.read([text]), model.target_tokenizer.special_tokens
        whole = special.wrap_target(ids)
        whole = whole[:-1] if special.eos is not None and len(whole) > len(ids) and whole[-1] == special.eos else whole
        if not whole:
            raise UserError(f"{text!r:.60}: no token of the model; give a text of its words.")
        self.model, self.ids = model, torch.tensor([whole])
        self.backward = model.reads_backward
        pieces = named_pieces(model.target_tokenizer, whole, text)[1:]
        self.pieces, self.tokens = pieces[::-1] if self.backward else pieces, len(whole)
        self.keys = {"decoder": len(whole)}
        self.best: int | None = None
        self.outcomes(1)

    def outcomes(self, copies: int) -> list[Outcome]:
        model, ids = self.model, self.ids.expand(copies, -1)
        states = model.states(ids)
        found = []
        for row in states:
            with model.autocast():
                logits = cast(Any, model.module).readout(row).float()
            logps = chosen_logps(model, logits[:-1].log_softmax(-1), self.ids[0, 1:].to(logits.device))
            offered = model.check_finite(logits[-1].softmax(-1))[
                : model.target_tokenizer.size
            ]  # a vocabulary may be padded
            offered[list(model.forbidden)] = 0.0
            values, best = offered.topk(min(TOP, len(offered)))
            names = model.target_tokenizer.pieces(best.tolist())
            place = [Candidate(name, value) for name, value in zip(names, values.tolist()) if value > 0]
            self.best = int(best[0]) if self.best is None else self.best
            logps = logps[::-1] if self.backward else logps
            found.append(Outcome(names[0], int(best[0]) == self.best, logps, [place]))
        return found
