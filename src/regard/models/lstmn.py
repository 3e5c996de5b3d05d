"""The LSTMN, an LSTM that attends to all its earlier states (Cheng et al. 2016): an early form of self-attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from regard.attention import Attention, Memory
from regard.data.example import Direction
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.layers.checks import check_config, resized_embed
from regard.mask import CAUSAL, zero_padding
from regard.models.causal import LanguageModel
from regard.models.directions import Directed
from regard.scores import NOT_FOR_SELF_ATTENTION, build_score, check_score
from regard.taps import add_layer


@dataclass(frozen=True)
class LstmnConfig(Directed):
    """A recurrent language model that attends to all its earlier states instead of keeping one vector."""

    takes_padding: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    layer_groups: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("embedding",),
        ("gates", "query", "attention"),
        ("readout_",),
    )

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    width: int = 256  # width of the recurrent states
    embed: int = 128  # width of the token embeddings
    score: str = "additive"  # how the current token is compared with earlier states: any score but location
    dropout: float = 0.1  # dropout on embeddings and before the readout
    context: int = 256  # the longest line, in tokens
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from
    direction: Direction = "forward"  # how the text is read: forward, backward (from its end), or both by two models

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "context"), {})
        check_score(self.score, NOT_FOR_SELF_ATTENTION)

    @property
    def longest(self) -> int:
        """The most tokens that the model reads."""
        return self.context

    @property
    def longest_target(self) -> int:
        return self.context

    def resized(self, width: int) -> Self:
        return replace(self, width=width, embed=resized_embed(self, width))

    def build(self) -> Lstmn:
        return Lstmn(self)

    def build_body(self) -> Lstmn:
        return Lstmn(self, readout=False)


@dataclass(frozen=True, eq=False)
class LstmnState:
    """All states so far as a memory, and the weighted sum of them that the last step computed."""

    memory: Memory  # values are [h; c] of each token; slots are preallocated up to the capacity, so shapes are fixed
    used: Tensor  # 0-d, on the device: slots in use
    host_used: int | None  # the same number on the host; None: only the device has it, because steps are captured
    summary: Tensor  # (B, width): h̃ of the last step

    def select(self, rows: Tensor) -> LstmnState:
        return replace(self, memory=self.memory.select(rows), summary=self.summary[rows])

    def most_used(self, count: int) -> int:
        """The most slots that can be in use before the next ``count`` tokens; raises if the memory is full."""
        spare = (capacity := self.memory.keys.shape[-2]) - count
        if spare < (self.host_used or 0):
            raise UserError(f"capacity={capacity}: the memory is full; start with a larger capacity")
        return spare if self.host_used is None else self.host_used


class Lstmn(LanguageModel):
    """An LSTM in which attention to all earlier states replaces the last state (Cheng et al. 2016, eq. 5-10).

    Without ``readout`` it is a body: it has no output layer.
    """

    def __init__(self, config: LstmnConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.embed, padding_idx=PAD)
        self.query = nn.Linear(config.embed + config.width, config.width)
        self.attention = Attention(build_score(config.score, config.width, config.context))
        self.gates = nn.Linear(config.embed + config.width, 4 * config.width)
        self.readout_ = nn.Linear(config.width, config.vocab) if readout else None

    def initial(self, rows: int, capacity: int | None = None) -> LstmnState:
        """The state before the first token, with a capacity in tokens."""
        width, like = self.config.width, self.gates.weight
        slot = Memory(self.attention.score.keys(like.new_zeros(1, 1, width)), like.new_zeros(1, 1, 2 * width))
        used = torch.zeros((), dtype=torch.long, device=like.device)
        return LstmnState(slot.new_zeros(rows, capacity or self.config.context), used, 0, like.new_zeros(rows, width))

    def advance(self, tokens: Tensor, state: LstmnState, real: Tensor | None = None) -> tuple[Tensor, LstmnState]:
        """Reads tokens (B, T): features (B, T, width) and the state after them.

        Padding, False in ``real``, may be anywhere: it is masked, and the summary does not change at it.
        """
        memory, summary, features = state.memory, state.summary, []
        used, at = state.most_used(tokens.shape[1]), state.used + torch.arange(tokens.shape[1], device=tokens.device)
        k_at = torch.arange(1, memory.keys.shape[-2] + 1, device=at.device)  # a state is visible from the next token on
        if real is not None:  # mark the padding among the slots that are written next
            before = real.new_ones(len(real), memory.keys.shape[-2]) if memory.real is None else memory.real
            memory = replace(memory, real=before.index_copy(1, at, real), finite_padding=True)
        embedded = self.drop(self.embedding(tokens))
        for t, x in enumerate(zero_padding(embedded, real).unbind(1)):
            query, here = self.query(torch.cat([x, summary], -1)), at[t : t + 1]
            reach = used + t + 1  # later slots are not in use yet
            read = self.attention(query.unsqueeze(1), memory.first(reach), CAUSAL, here, k_at[:reach]).squeeze(1)
            read, cell = read.chunk(2, -1)  # h̃, c̃: zeros at the first token
            summary = read if real is None else read.where(real[:, t, None], summary)
            i, f, o, g = self.gates(torch.cat([x, read], -1)).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(cell)
            new = Memory(self.attention.score.keys(h.unsqueeze(1)), torch.cat([h, cell], -1).unsqueeze(1))
            memory = memory.write_at(here, new)
            features.append(h)
        count = tokens.shape[1]
        host_used = None if state.host_used is None else state.host_used + count
        add_layer(embedded)
        add_layer(states := torch.stack(features, 1))
        return states, LstmnState(memory, state.used + count, host_used, summary)

    def preallocate(self, state: LstmnState, steps: int) -> LstmnState:
        """The state whose next ``steps`` steps can be captured. Its memory is allocated already, so this checks it."""
        if state.host_used is None:  # waits for the GPU
            state = replace(state, host_used=int(state.used))
        state.most_used(steps)
        return replace(state, host_used=None)
