"""The perplexity of a running text, by any language model.

A text of N tokens x has the loss −Σ ln p(x[t] | tokens before x[t]), in nats, over all tokens but the first (with bos
before the text: over all tokens). A model with a limited context reads windows that overlap: each token is predicted
once, in the first window that has it, from the tokens before it in that window. A model that carries a state
(recurrent, Transformer-XL) reads the text in segments, from the state after the segment before.

The perplexity of a token depends on the tokenizer. Bits per byte, bits per word and the perplexity of a word do
not, so that models with other tokenizers can be compared.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from regard.data.batches import Batch
from regard.data.example import Text
from regard.data.flat import Values
from regard.data.streams import Book, encode_running, in_order
from regard.data.text_files import TextExamples
from regard.errors import UserError
from regard.metrics import perplexity
from regard.objectives import TeacherForcing
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS
from regard.verbs.given import as_text, listed
from regard.verbs.loaded import Loaded

WINDOW = 512  # tokens of a window, or of a segment, where neither the model nor the data that it was trained on has any


@dataclass(frozen=True)
class RunningScore:
    """The loss of a running text, and what it is divided by."""

    nats: float  # −Σ ln p of the predicted tokens
    tokens: int  # that were predicted
    bytes: int  # of the text, in UTF-8
    words: int  # of the text, separated by whitespace
    unknown: int  # tokens of the text that the tokenizer does not have
    window: int  # the most tokens that were read together
    stride: int | None  # by how many tokens the windows moved on; None: the state was carried

    @property
    def perplexity(self) -> float:
        """Per token."""
        return perplexity(-self.nats, self.tokens)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.bytes

    @property
    def bits_per_word(self) -> float:
        return self.nats / math.log(2) / self.words

    @property
    def word_perplexity(self) -> float:
        return perplexity(-self.nats, self.words)


@torch.no_grad()
def score_running(
    model: Loaded,
    examples: Iterable[Text | str],
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], object] = lambda tokens: None,
) -> RunningScore:
    """The loss of a text, which is its examples, or strings, joined.

    Windows move on by `stride` tokens, by default half of a window: a smaller stride gives every token more context
    and takes longer. `progress` gets the number of tokens after each batch.
    """
    model.expect("eval --running", model.task.head == "next")
    parts = _examples(examples)
    ids, _ = encode_running(model.target_tokenizer, parts)
    text = np.concatenate([np.array(model.opening, ids.dtype), ids]) if model.opening else ids
    size, words = _size(parts)
    if len(text) < 2 or not words:
        raise UserError(f"--running: the text has {len(ids)} tokens, too few to predict one; give a longer text.")
    trained = model.data.window if isinstance(model.data, Book) else 0
    window = max(2, model.longest or trained or WINDOW)
    if not model.module.config.carries:
        stride = max(1, window // 2) if stride is None else stride
        if not 0 < stride < window:
            raise UserError(f"--stride {stride}: a window has {window} tokens; give 1 to {window - 1}.")
    elif stride is not None:
        raise UserError(f"--stride {stride}: this model carries its state through the whole text; leave it out.")
    objective, state = TeacherForcing(), None
    nats = torch.zeros((), dtype=torch.float64, device=model.device)
    for batch in _batches(text, window, stride, batch_tokens):
        with pause_recording(model.module), model.autocast():
            sums, state = objective(model.module, batch.to(model.device), 0, state=state)  # type: ignore[arg-type]
        nats += sums["nll"].double()
        progress(batch.counts["targets"])
    total = float(-model.check_finite(-nats))
    unk = model.target_tokenizer.special_tokens.unk
    unknown = 0 if unk is None else int((ids == unk).sum())
    return RunningScore(total, len(text) - 1, size, words, unknown, window, stride)


def _batches(text: Values, window: int, stride: int | None, budget: int) -> Iterator[Batch]:
    """Overlapping windows, whose first token is never a target; or segments, each of which continues the one before."""
    if stride is not None:
        yield from in_order(text, window - 1, budget, stride)
        return
    for number, batch in enumerate(in_order(text, window, window)):
        yield replace(batch, segment=number)


def _examples(given: Iterable[Text | str]) -> Iterable[Text]:
    """The examples of any iterable, to be read twice; a text on disk stays there."""
    if isinstance(given, TextExamples):
        return given
    items = enumerate(listed(given, "examples"))
    return [one if isinstance(one, Text) else Text(as_text(one, f"examples[{place}]")) for place, one in items]


def _size(examples: Iterable[Text]) -> tuple[int, int]:
    """The bytes and words of a text; a word may continue from one example to the next."""
    size, words, inside = 0, 0, False
    for text in (example.text for example in examples if example.text):
        size += len(text.encode())
        words += len(text.split()) - (inside and not text[0].isspace())
        inside = not text[-1].isspace()
    return size, words
