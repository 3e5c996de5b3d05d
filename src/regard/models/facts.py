"""The facts that a model's config declares, and the methods that a model has.

Other code reads these facts. It never tests which class a model has, so a model from outside the library works with
the verbs if its config declares the same facts. A config may inherit from `Facts` to get the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol, Self

from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import set_sizes
from regard.data.example import Direction
from regard.errors import UserError

TEXT_OR_NUMBERS = {"vocab": "text", "numbers": "values"}  # the `sizes` of a model that reads tokens or numbers


class Facts(Protocol):
    """What a model can do, and what its limits are. Only `causal`, `predicts` and `width` have no default."""

    learns_by: ClassVar[str] = "gradients"  # how it learns: by gradients, counts, pairs, cooccurrences or nothing
    takes_numbers: ClassVar[bool] = False  # whether it can read numbers in place of tokens
    reads_words: ClassVar[bool] = False  # whether its texts are words with their characters (`regard.data.spelled`)
    # whether a recipe that starts from it (from=DIR) trains it, also if the model of the recipe can read its states
    finetunes: ClassVar[bool] = False
    takes_head: ClassVar[bool] = False  # whether it can be the body under another head; it then has `build_body`
    reads_source: ClassVar[bool] = False  # whether it reads a source beside its target; it then has `encode`
    source_field: ClassVar[str] = "source"  # the field of a task that the source is made of: a text, or an image
    # whether `advance` computes the features of several tokens at once, with one call of each attention
    parallel: ClassVar[bool] = False
    output_layer: ClassVar[str] = "readout_"  # the path of the output layer, if it has weights of its own
    embedding_width: ClassVar[str] = "embed"  # the name of the setting that is the width of the input embedding
    longest_setting: ClassVar[str] = "context"  # the name of the setting that limits `longest`
    first_weights: ClassVar[tuple[str, ...]] = ()  # the names of the settings that only the first weights depend on

    @property
    def causal(self) -> bool:
        """Whether a token sees only the tokens before it; the model then has `start`, `advance` and `step`."""

    @property
    def predicts(self) -> tuple[str, ...]:
        """What the model predicts with its own output layers: target, next, both, masked or class."""

    @property
    def width(self) -> int:
        """The width of the states of the last layer."""

    @property
    def longest(self) -> int | None:
        """The most tokens of a text or source; None: any number."""
        return None

    @property
    def token_vocab(self) -> int:
        """The number of ids that `tokens` can have: those of a text, or of a target where there is a source."""
        own: Any = self
        return own.target_vocab if self.reads_source else own.vocab

    @property
    def source_vocab(self) -> int:
        """The number of ids that a source can have; 0: the model reads no source, or one that is no text."""
        return 0

    @property
    def numbers(self) -> int:
        """The numbers that the model reads at each place instead of a token; 0: it reads tokens."""
        return 0

    @property
    def characters(self) -> int:
        """The ids of characters of a word that the model can read in place of a token (B, T, C); 0: it reads tokens."""
        return 0

    @property
    def source_shape(self) -> tuple[int, ...]:
        """The shape of a source that is an image: pixels (H, W, 3), or features (cells, D); empty: it is no image."""
        return ()

    @property
    def source_grid(self) -> tuple[int, int] | None:
        """The rows and columns of the cells that attention reads of an image; None: a source is no image."""
        return None

    @property
    def direction(self) -> Direction:
        """How a text is read: forward, backward (its tokens in reversed order) or both (by two models, see `directed`).

        The tokenizer reverses the tokens, so that a model that reads backward is a causal model like any other.
        """
        return "forward"

    @property
    def sizes(self) -> Mapping[str, str]:
        """The settings that follow from the data: the name of each, and the field whose size it has."""
        return {"vocab": "text"}

    @property
    def embedding(self) -> str:
        """The file of word vectors that the input embedding starts from; empty: none."""
        return ""

    @property
    def input_embedding(self) -> str:
        """The path of the `nn.Embedding` that embeds the tokens of a text or source."""
        return "embedding"

    @property
    def embedding_scale(self) -> float:
        """The number by which the model multiplies its input embedding."""
        return 1.0

    @property
    def longest_target(self) -> int | None:
        """The most tokens of a target, its end included; None: any number."""
        return None

    @property
    def segment_kinds(self) -> int:
        """The number of ids that `segments` can have; 0: the model has no segments."""
        return 0

    @property
    def position_rows(self) -> int | None:
        """The number of rows of the position table; None: there is no table."""
        return None

    @property
    def takes_padding(self) -> bool:
        """Whether `advance` accepts `real`, so that texts of several lengths can share a batch."""
        return False

    @property
    def takes_positions(self) -> bool:
        """Whether `advance` accepts `real` and `positions`."""
        return False

    @property
    def carries(self) -> bool:
        """Whether training can carry the state from one segment of a text to the next.

        The model then has `start_segments(rows)`, the state before the first segment. The state after `advance` differs
        from it only in its tensors, which are saved with the run.
        """
        return False

    @property
    def one_per_text(self) -> bool:
        """Whether the model makes one prediction per text, `readout(features, real)`, and not one per token."""
        return False

    @property
    def predicts_sentences(self) -> bool:
        """Whether the model has an output layer for a question about a text of two parts: `follows(features)`."""
        return False

    @property
    def tag_sequences(self) -> bool:
        """Whether the tags of a text depend on one another; `head` of the model is then a `heads.TagSequences`."""
        return False

    @property
    def threshold(self) -> float:
        """The probability from which a model gives a text a label, if it can give several."""
        return 0.5

    @property
    def pooling(self) -> Literal["first", "last", "mean", "max"]:
        """How a head that makes one prediction per text pools the states: first, last, mean or max."""
        return "last" if self.causal else "first"

    @property
    def filter_sizes(self) -> tuple[int, ...]:
        """The number of tokens that each feature reads, if the features are those of filters over n-grams; else empty.

        The window of a feature of size n starts (n − 1) // 2 tokens before its token.
        """
        return ()

    @property
    def gates(self) -> Mapping[str, str]:
        """What a recurrent cell with gates computes at a step, by name, and what it is; else empty.

        The model then has `trace(tokens)`: for each layer, these by name, (B, T, width) each.
        """
        return {}

    @property
    def attention_rows(self) -> tuple[str, ...]:
        """The names of the rows of an attention matrix; empty: the rows are the tokens of the text."""
        return ()

    @property
    def causal_attention(self) -> bool:
        """Whether a token of the text or target attends only to tokens before it; also true of a body under a head."""
        return self.causal

    @property
    def reads_encoder(self) -> bool:
        """Whether the model is the encoder of its body under a head, and the decoder of the body is not run."""
        return False

    @property
    def query(self) -> Literal["before", "state", "layer"]:
        """What a decoder's query is: its state before the step, its state at the step, or a vector of the layer."""
        return "layer"

    @property
    def memory(self) -> int:
        """The number of tokens before a segment whose states the model attends to; 0: it has no such memory."""
        return 0

    def resized(self, width: int) -> Self:
        """The config of a model of about this width whose other widths follow; `resized(self.width)` equals `self`."""
        same: Any = self
        return replace(same, width=width)

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        """The layers from the input to the output: the paths of the modules of each, the first of which names it.

        Training can give each layer a learning rate of its own, or freeze it. Weights outside belong to the last one.
        """
        return ()

    @property
    def tied(self) -> bool:
        """Whether the output layer uses the token embeddings as its matrix."""
        return False

    @property
    def training_groups(self) -> tuple[tuple[str, ...], ...]:
        """The `layer_groups` as training uses them: the embedding of a tied model is part of its output layer."""
        if not self.tied:
            return self.layer_groups
        first, *between, last = self.layer_groups
        return (*between, (*first, *last))

    def split(self) -> tuple[Any, Any]:
        """The config of the body and of the head above it; (self, None): the model has output layers of its own."""
        return self, None

    def without_attention(self) -> Self | None:
        """The config of the same model without attention; None: there is no such model."""
        return None

    def directed(self) -> Any:
        """The config of the model that the settings describe: of two models, if `direction` is both."""
        return self

    def with_output(self, name: str) -> Self:
        """The config of the same model that also has the output layer for one of `predicts`."""
        return self

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> Self:
        """The settings with the sizes of the fields, see `regard.config.set_sizes`."""
        return set_sizes(self, self.sizes, sizes, padded)

    def with_names(self, names: Mapping[str, tuple[str, ...]]) -> Self:
        """The settings with the names of the classes, by field, if the model needs them."""
        return self

    def build(self) -> Any:
        """The model, with new weights."""

    def build_body(self) -> Any:
        """The model without its own output layers, with new weights. It has `features`, as `ReadsText`."""
        raise UserError(f"{type(self).__name__}: this model cannot be the body under another head.")


class Translates(Facts):
    """The facts of a model that reads a source and generates a target."""

    causal: ClassVar[bool] = True
    reads_source: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = ("target",)
    sizes: ClassVar[Mapping[str, str]] = {"source_vocab": "source", "target_vocab": "target"}


class Classifies(Facts):
    """The facts of a classifier of texts, which can be the body under another head."""

    causal: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("class",)
    one_per_text: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = {"vocab": "text", "labels": "label"}
    takes_head: ClassVar[bool] = True


def of_body(name: str) -> Any:
    """A fact that a config has in common with the config of its `body`."""
    return property(lambda config: getattr(config.body, name))


class SharesFacts(Facts):
    """The facts that a config has in common with the config of its `body`."""

    body: Any

    longest = of_body("longest")
    longest_setting = of_body("longest_setting")
    token_vocab = of_body("token_vocab")
    numbers = of_body("numbers")
    characters = of_body("characters")
    embedding = of_body("embedding")
    embedding_width = of_body("embedding_width")
    embedding_scale = of_body("embedding_scale")
    causal_attention = of_body("causal_attention")


class Model(nn.Module):
    """A module whose config declares its facts: the base of our models, and a type for annotations."""

    config: Any

    def drop(self, x: Tensor) -> Tensor:
        """Dropout by the setting ``dropout``, in training alone."""
        return F.dropout(x, self.config.dropout, self.training)


class ReadsText(Protocol):
    """A model that reads a whole text: every model that is not causal, and every body under a head."""

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The states (B, T, width) of the last layer at tokens (B, T)."""


class GivesLayers(Protocol):
    """A model that reads a text, or a source, and gives the states of every layer."""

    def layers(self, tokens: Tensor, real: Tensor | None = None) -> tuple[Tensor, ...]:
        """The states (B, T, D) of every layer at tokens (B, T) of a text or source, the input embeddings first."""


class ReadsSource(Protocol):
    """A model that reads a source."""

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """The states (B, Ts, width) of a source (B, Ts), or of the Ts cells of an image."""


def reads_whole(config: Facts) -> bool:
    """Whether the text that a model is given (its source, if it has one) is read in both directions."""
    return config.reads_source or not config.causal
