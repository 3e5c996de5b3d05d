"""Subjects of models that read a text whole: masks, classes, numbers and tags (`verbs/outcomes.py`)."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import collate
from regard.data.fields import MASK, LabelField, TextField
from regard.data.flat import Row
from regard.data.word_pieces import PieceText
from regard.errors import UserError
from regard.heads import best_tags, tag_sequences
from regard.verbs.filling import mask_of
from regard.verbs.forced import BATCH_TOKENS, batch_of, input_rows, joined_rows, named_pieces, text_rows
from regard.verbs.labelling import joined_values
from regard.verbs.loaded import Loaded
from regard.verbs.outcomes import TOP, Candidate, Given, Outcome, chosen_logps
from regard.verbs.tagging import tag_names


class Masked:
    """A text with masks, or each of whose tokens is hidden in turn."""

    def __init__(self, model: Loaded, text: str) -> None:
        self.model, name = model, mask_of(model)
        if MASK in text and name != MASK:
            raise UserError(f"{text!r:.60}: the mask of {model.path} is {name}; write {name} in the place of {MASK}.")
        (self.ids,), mask = model.read([text]), model.tokenizer.special_tokens.mask
        if not self.ids:
            raise UserError(f"{text!r:.60}: no token of the model; give a text of its words.")
        first = model.tokenizer.special_tokens.wrap_input([-1]).index(-1)
        given = [at for at, token in enumerate(self.ids) if token == mask]
        self.at = given or list(range(len(self.ids)))
        inputs = [self.ids] if given else [[*self.ids[:at], mask, *self.ids[at + 1 :]] for at in self.at]
        self.inputs = batch_of(model, [([], cast(list[int], one)) for one in inputs])["tokens"].to(model.device)
        rows = [0] * len(given) if given else range(len(self.at))
        self.places = torch.tensor([[row, first + at] for row, at in zip(rows, self.at)], device=model.device)
        self.tokens = self.inputs.shape[1]
        self.keys = {"encoder": self.tokens}
        self.best: list[int] | None = None
        self.truth = None if given else torch.tensor(self.ids, device=model.device)
        self.outcomes(1)
        assert self.best is not None
        self.truth = torch.tensor(self.best, device=model.device) if self.truth is None else self.truth
        self.pieces = model.tokenizer.pieces(self.truth.tolist())

    def outcomes(self, copies: int) -> list[Outcome]:
        some = max(1, BATCH_TOKENS // (copies * self.tokens))
        parts = list[Tensor]()
        for inputs, places in zip(self.inputs.split(some), self._places(some)):
            parts.append(self._logps(inputs, places, copies))
        return [self._outcome(logps) for logps in torch.cat(parts, dim=1)]

    def _places(self, some: int) -> list[Tensor]:
        """The places in each part of the inputs: the row in the part, and the place in the row."""
        firsts = range(0, len(self.inputs), some)
        rows = self.places[:, 0]
        return [
            self.places[(rows >= first) & (rows < first + some)] - torch.tensor([first, 0], device=rows.device)
            for first in firsts
        ]

    def _logps(self, inputs: Tensor, places: Tensor, copies: int) -> Tensor:
        """(copies, places, V) of some of the inputs: all of them for the first copy, then for the second."""
        module = cast(Any, self.model.module)
        states = self.model.states(inputs.repeat(copies, 1)).unflatten(0, (copies, len(inputs)))
        with self.model.autocast():
            logits = module.product(states[:, places[:, 0], places[:, 1]].flatten(0, 1)).logits().float()
        found: Tensor = logits.log_softmax(-1).unflatten(0, (copies, len(places)))
        return found

    def _outcome(self, logps: Tensor) -> Outcome:
        tokenizer, offered = self.model.tokenizer, logps[:, : self.model.tokenizer.size]
        values, best = offered.topk(min(TOP, offered.shape[1]))
        likeliest = best[:, 0].tolist()
        self.best = likeliest if self.best is None else self.best
        places = [
            [Candidate(name, value) for name, value in zip(tokenizer.pieces(row), chances)]
            for row, chances in zip(best.tolist(), values.exp().tolist())
        ]
        ids = list(self.ids)
        for at, token in zip(self.at, likeliest):
            ids[at] = token
        truth = best[:, 0] if self.truth is None else self.truth
        own = tokenizer.pieces(likeliest)
        return Outcome(
            tokenizer.decode(ids), likeliest == self.best, chosen_logps(self.model, logps, truth), places, own
        )


class Detected:
    """A text of whose tokens ELECTRA says which were replaced."""

    def __init__(self, model: Loaded, text: str) -> None:
        (self.ids,), self.model = model.read([text]), model
        special = model.tokenizer.special_tokens
        self.first, self.tokens = special.wrap_input([-1]).index(-1), len(special.wrap_input(self.ids))
        self.pieces, self.keys = named_pieces(model.tokenizer, self.ids, text), {"encoder": self.tokens}
        self.replaced: Tensor | None = None
        self.outcomes(1)

    def outcomes(self, copies: int) -> list[Outcome]:
        tokens = batch_of(self.model, [([], self.ids)] * copies)["tokens"].to(self.model.device)
        with self.model.autocast():
            logits = cast(Any, self.model.module).replaced(self.model.states(tokens)).float()
        logits = self.model.check_finite(logits[:, self.first : self.first + len(self.ids)].cpu())
        found = []
        for row in logits:
            now = row > 0
            self.replaced = now if self.replaced is None else self.replaced
            names = [piece for piece, gone in zip(self.pieces, now.tolist()) if gone]
            logps = F.logsigmoid(torch.where(self.replaced, row, -row)).tolist()
            places = [[Candidate("replaced", chance)] for chance in row.sigmoid().tolist()]
            answer = f"replaced: {', '.join(names)}" if names else "no token was replaced"
            found.append(Outcome(answer, bool((now == self.replaced).all()), logps, places))
        return found


class Labels:
    """A text, or a text of several parts, of which a model predicts the class, labels, a number or a choice."""

    def __init__(self, model: Loaded, text: Given) -> None:
        self.model, self.head = model, model.task.head
        if model.joined_text is None:
            (ids,) = model.read([cast(str, text)])
            self.row: Row = text_rows(model, [cast(str, text)], [ids])[0]
            self.tokens = len(model.tokenizer.wrap_input(ids))
        else:
            arrays = model.read_joined(joined_values(model, [text]))
            self.row, self.tokens = joined_rows(model, arrays)[0], arrays[0].shape[-2]
        self.keys = dict.fromkeys(("encoder", "decoder", "cross"), self.tokens)
        names = next((each.names for each in model.fields.values() if isinstance(each, LabelField)), ())
        self.names = list(text[1:]) if self.head == "choice" else list(names)
        self.given: list[int] | None = None
        self.number = ""  # the original one, as it is shown
        self.pieces = list[str]()
        self.outcomes(1)
        assert self.given is not None
        decided = {"class": self.given, "choice": self.given, "labels": range(len(self.names)), "number": ()}
        self.pieces = [self.names[at] for at in decided[self.head]]

    def outcomes(self, copies: int) -> list[Outcome]:
        batch = collate([self.row] * copies, self.model.task).to(self.model.device)
        with self.model.autocast():
            outputs = self.model.module(batch)
        outputs = self.model.check_finite(outputs.float().cpu()).reshape(copies, -1)  # (copies, labels)
        return [self._number(row) if self.head == "number" else self._labels(row) for row in outputs]

    def _number(self, row: Tensor) -> Outcome:
        number = float(row[0])
        self.given, shown = [], f"{number:.6g}"
        self.number = self.number or shown
        return Outcome(shown, shown == self.number, [], [], number=number)

    def _labels(self, row: Tensor) -> Outcome:
        if self.head == "labels":
            probabilities, least = row.sigmoid(), self.model.module.config.threshold
            given = torch.nonzero(probabilities >= least)[:, 0].tolist()
            self.given = given if self.given is None else self.given
            sign = torch.full_like(row, -1.0)
            sign[self.given] = 1.0
            logps = F.logsigmoid(sign * row).tolist()
        else:
            probabilities, given = row.softmax(-1), [int(row.argmax())]
            self.given = given if self.given is None else self.given
            logps = row.log_softmax(-1)[self.given].tolist()
        values, best = probabilities.topk(min(TOP, len(row)))
        place = [Candidate(self.names[at], value) for at, value in zip(best.tolist(), values.tolist())]
        return Outcome(" | ".join(self.names[at] for at in given), given == self.given, logps, [place])


class Tags:
    """A text whose words a model tags."""

    def __init__(self, model: Loaded, text: str) -> None:
        self.model, self.names = model, tag_names(model)
        name, each = next((name, each) for name, each in model.fields.items() if isinstance(each, TextField))
        words = text.split()  # as `look` reads it
        (array,) = each.encode([" ".join(words)])
        if isinstance(each, PieceText) and model.longest is not None and len(array) > model.longest:
            raise UserError(f"{len(array)} tokens, but the model reads at most {model.longest} together; shorten it.")
        self.row, self.tokens = input_rows(model, name, [array])[0], len(array)
        self.keys = {"encoder": self.tokens, "decoder": self.tokens}
        self.words, self.best = words, cast(Tensor | None, None)
        self.outcomes(1)
        assert self.best is not None
        self.pieces = [f"{word}/{self.names[tag]}" for word, tag in zip(words, self.best.tolist())]

    def outcomes(self, copies: int) -> list[Outcome]:
        model = self.model
        batch = collate([self.row] * copies, model.task).to(model.device)
        with model.autocast():
            logits, words = model.module(batch), batch.fields.get("words", batch.real["tokens"])
        logits = model.check_finite(logits[words].unflatten(0, (copies, -1)).float())  # (copies, W, L)
        best = best_tags(model.module, logits, torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device))
        self.best = best[0] if self.best is None else self.best
        return [self._outcome(row, tags, self.best) for row, tags in zip(logits, best)]

    def _outcome(self, logits: Tensor, tags: Tensor, original: Tensor) -> Outcome:
        chain, chances = tag_sequences(self.model.module), logits.softmax(-1)
        if chain is None:
            logps = chosen_logps(self.model, logits.log_softmax(-1), original)
        else:  # log p of the first n tags, for each n; a tag has the difference
            count, labels = logits.shape
            wanted = F.one_hot(original, labels).bool()[None]  # (1, W, L)
            after = (
                torch.arange(count, device=logits.device) >= torch.arange(1, count + 1, device=logits.device)[:, None]
            )
            sums = chain.log_probability(logits.expand(count, -1, -1), wanted | after[..., None])
            logps = sums.diff(prepend=sums.new_zeros(1)).tolist()
        names = [self.names[tag] for tag in tags.tolist()]
        places = [] if chain is not None else [self._candidates(row) for row in chances]
        pieces = [f"{word}/{name}" for word, name in zip(self.words, names)]
        return Outcome(" ".join(names), bool((tags == original).all()), logps, places, pieces)

    def _candidates(self, chances: Tensor) -> list[Candidate]:
        values, best = chances.topk(min(TOP, len(chances)))
        return [Candidate(self.names[tag], value) for tag, value in zip(best.tolist(), values.tolist())]
