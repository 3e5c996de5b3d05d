"""The options of every topic. They are apart from the topics so that the help of a topic does not wait for torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from regard.errors import UserError

Limits = Mapping[str, tuple[int, int]]  # option → the least and the largest value


@dataclass(frozen=True)
class Options:
    """The options of a topic."""

    seed: int = 1  # of initial weights and examples
    limits: ClassVar[Limits] = {}
    places: ClassVar[tuple[str, ...]] = ()  # options that a command takes without their names, in this order

    def __post_init__(self) -> None:
        for name, (least, most) in {"seed": (0, 2**31), "steps": (0, 1_000_000), **self.limits}.items():
            value = getattr(self, name, least)
            if not all(least <= one <= most for one in (value if isinstance(value, tuple) else (value,))):
                raise UserError(f"{name}={value}: give {least} to {most:,}.")


@dataclass(frozen=True)
class ModelOptions(Options):
    """The options of a topic that can use a model of the user."""

    model: str = ""  # DIR: a run or a public checkpoint; empty: a small model is trained now
    text: str = ""  # TEXT: what the model in DIR reads
    places: ClassVar[tuple[str, ...]] = ("model", "text")


@dataclass(frozen=True)
class AttentionOptions(ModelOptions):
    """The options of the topic `attention`."""

    decoder: str = ""  # bahdanau, luong or luong-feeding: train a small recurrent model, not a Transformer
    score: str = "additive"  # of that model: dot, scaled_dot, general, additive, cosine or location
    layer: int = 0  # the block, from 0, the lowest; -1 is the last
    head: int | None = None  # the head, from 0; none: the one with the largest weight on another word
    word: int = -1  # the word whose query is shown, from 0 (of a translator with recurrence: of its target); -1: last
    steps: int = 150  # training steps of the small model; a recurrent one has twice as many


@dataclass(frozen=True)
class ScoresOptions(Options):
    """The options of the topic `scores`."""

    keys: int = 5  # keys of the query
    width: int = 16  # of the query and the keys
    limits: ClassVar[Limits] = {"keys": (2, 8), "width": (1, 4096)}


@dataclass(frozen=True)
class ScalingOptions(Options):
    """The options of the topic `scaling`."""

    keys: int = 64  # keys of each query
    queries: int = 256  # over which the statistics are means or medians
    widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024)  # of queries and keys
    limits: ClassVar[Limits] = {"keys": (2, 4096), "queries": (1, 4096), "widths": (1, 2**16)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths:
            raise UserError("widths=: give at least one, such as widths=8,64.")


@dataclass(frozen=True)
class MaskingOptions(Options):
    """The options of the topic `masking`."""

    steps: int = 240  # training steps of each network
    count: int = 200  # sentences that each network generates
    limits: ClassVar[Limits] = {"count": (1, 100_000)}


@dataclass(frozen=True)
class HeadsOptions(ModelOptions):
    """The options of the topic `heads`."""

    steps: int = 400  # training steps of the small model


@dataclass(frozen=True)
class PositionsOptions(Options):
    """The options of the topic `positions`."""

    length: int = 16  # the largest length of texts in training
    lengths: tuple[int, ...] = ()  # of the texts of the test; empty: up to four times as long
    steps: int = 300  # training steps of each network
    limits: ClassVar[Limits] = {"length": (6, 256), "lengths": (1, 4096)}


@dataclass(frozen=True)
class ResidualsOptions(Options):
    """The options of the topic `residuals`."""

    length: int = 12  # symbols of a text
    steps: int = 320  # training steps of each network
    limits: ClassVar[Limits] = {"length": (4, 128)}


@dataclass(frozen=True)
class LayersOptions(Options):
    """The options of the topic `layers`."""

    length: int = 4096  # the longest input; its half, its quarter … are measured too
    width: int = 64  # of the states
    window: int = 32  # how many positions restricted attention sees to either side
    limits: ClassVar[Limits] = {"length": (32, 2**17), "width": (1, 8192), "window": (1, 2**17)}


@dataclass(frozen=True)
class GradientsOptions(Options):
    """The options of the topic `gradients`."""

    length: int = 40  # inputs of a sequence
    steps: int = 300  # training steps of each network
    limits: ClassVar[Limits] = {"length": (2, 4096)}


@dataclass(frozen=True)
class ReceptiveOptions(Options):
    """The options of the topic `receptive`."""

    kernel: int = 3  # positions that a convolution reads
    layers: int = 2  # blocks of two convolutions; each doubles the dilation
    steps: int = 200  # training steps of each network
    limits: ClassVar[Limits] = {"kernel": (2, 8), "layers": (1, 6)}
    places: ClassVar[tuple[str, ...]] = ("kernel", "layers")


@dataclass(frozen=True)
class GatesOptions(Options):
    """The options of the topic `gates`."""

    length: int = 20  # symbols of a sequence
    steps: int = 600  # training steps of each network
    limits: ClassVar[Limits] = {"length": (4, 200)}


@dataclass(frozen=True)
class BottleneckOptions(Options):
    """The options of the topic `bottleneck`."""

    length: int = 20  # the most letters of a text in training; up to one and a half times as many are tested
    width: int = 64  # of the recurrent states, and of the vector between encoder and decoder
    steps: int = 400  # training steps of each network
    limits: ClassVar[Limits] = {"length": (2, 160), "width": (2, 1024)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 2:
            raise UserError(f"width={self.width}: give an even number; each direction of the encoder has half of it.")


@dataclass(frozen=True)
class ForcingOptions(Options):
    """The options of the topic `forcing`."""

    runs: tuple[str, ...] = ()  # DIR,DIR: trained runs to measure; empty: small models are trained on dates now
    seeds: int = 3  # how many seeds each of the small models is trained with, from `seed` on
    steps: int = 100  # training steps of each small model
    count: int = 400  # validation examples to measure, at most
    limits: ClassVar[Limits] = {"seeds": (1, 20), "count": (1, 1_000_000)}
    places: ClassVar[tuple[str, ...]] = ("runs",)


@dataclass(frozen=True)
class FiltersOptions(Options):
    """The options of the topic `filters`."""

    runs: tuple[str, ...] = ()  # DIR,DIR: trained runs to show; empty: three small networks are trained now
    text: str = ""  # what a run with heads reads
    layer: int = 0  # the layer whose heads are shown, from 0, the lowest; -1 is the last
    steps: int = 600  # training steps of each small network
    places: ClassVar[tuple[str, ...]] = ("runs", "text")


@dataclass(frozen=True)
class NgramsOptions(Options):
    """The options of the topic `ngrams`."""

    file: str = ""  # FILE: a text of yours, a sentence on each line; empty: sentences of a toy grammar
    words: int = 8  # words whose pairs are shown
    steps: int = 300  # training steps of the LSTM
    limits: ClassVar[Limits] = {"words": (1, 1000)}
    places: ClassVar[tuple[str, ...]] = ("file",)


@dataclass(frozen=True)
class SensesOptions(Options):
    """The options of the topic `senses`."""

    models: tuple[str, ...] = ()  # DIR,DIR: runs or public checkpoints to compare; empty: small models are trained now
    steps: int = 900  # training steps of each small model
    places: ClassVar[tuple[str, ...]] = ("models",)


@dataclass(frozen=True)
class MixOptions(Options):
    """The options of the topic `mix`."""

    steps: int = 300  # training steps of the language model
    fit: int = 300  # training steps of each task
    limits: ClassVar[Limits] = {"fit": (0, 100_000)}


@dataclass(frozen=True)
class MaskingRatesOptions(Options):
    """The options of the topic `masking-rates`."""

    file: str = ""  # FILE: a text of yours with spaces between its words; empty: sentences about animals
    vocab: int = 1000  # the most words that the models know
    seeds: int = 3  # how many seeds each model is trained with, from `seed` on
    steps: int = 160  # training steps of each model
    count: int = 200  # windows of 40 words in the test
    limits: ClassVar[Limits] = {"vocab": (10, 20_000), "seeds": (1, 20), "count": (2, 100_000)}
    places: ClassVar[tuple[str, ...]] = ("file",)


@dataclass(frozen=True)
class TransferOptions(Options):
    """The options of the topic `transfer`."""

    labels: tuple[int, ...] = (8, 32, 128, 512)  # numbers of labelled sentences
    seeds: int = 3  # how many seeds each classifier is trained with, from `seed` on
    steps: int = 400  # training steps of each pre-trained model
    fit: int = 80  # training steps of each classifier
    limits: ClassVar[Limits] = {"labels": (2, 10_000), "seeds": (1, 20), "fit": (0, 100_000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels:
            raise UserError("labels=: give at least one number, such as labels=8,128.")
