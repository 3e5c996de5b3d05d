"""How many words to mask, and what to show in their place.

A masked language model (BERT, Devlin et al. 2019, §3.1) chooses 15 % of the words of a text and learns to predict these
from the others. If few words are chosen, a text gives few predictions to learn from. If many are chosen, little context
is left to predict them from. Here the same small encoder is trained with several rates, for equally many steps.

A chosen word is not always replaced by the mask. In 80 % of the cases it is, in 10 % a random word is shown, and in
10 % the word itself is kept (80/10/10). The texts that a model reads later have no masks. With masks alone (100/0/0)
the loss never depends on the last state of a word that is shown, so nothing trains this state. With random and kept
words, the model may have to predict any word, so it must compare each word with its context. If all chosen words are
kept (0/0/100), the model only has to copy.

All models have the same test. In texts that they have not seen, 15 % of the words are masked: how many are predicted?
Then the models read the same texts without masks. Does the output layer predict the words that are shown? And can a
linear probe predict the next word from the last state of a word? If so, the state contains a part of its context.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from regard.data.batches import IGNORED
from regard.data.corruption import MaskTokens
from regard.data.files import iterate_lines
from regard.data.flat import Rows
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.device import single_thread
from regard.errors import UserError
from regard.explain.experiment import (
    TinyTransformer,
    accuracy,
    mean_loss,
    seeds_of,
    sizes_of,
    train,
    training_of,
)
from regard.explain.masked_lm import ANIMALS, MASK, sentence
from regard.explain.options import MaskingRatesOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.layers.transformer import Shape
from regard.report.figures import mean_line, with_spread
from regard.report.sections import Cell, Curve, Pre, Section, Table

READING = """
A model with a rate of 5 % predicts the fewest masked words: after the same number of steps, it has learnt from a tenth
as many predictions as with 50 %. From 15 % on, the differences are as large as the standard deviations. So these
results do not show which of the higher rates is the best. The texts are easy: one or two words determine a masked word,
so that a model can do without much of the context.

The second table shows what each part of 80/10/10 does. With masks alone, the model predicts masked words as well as
with 80/10/10, but it predicts almost none of the words that are shown: the last states of these words were never
trained. With kept words it predicts nearly all of them. With random words it predicts fewer, because a word that is
shown may be wrong. If all chosen words are kept, the model copies what it sees, and predicts fewer masked words than
chance.

The probe is a weak test: a model that is not trained is not far below the others. On average it predicts more next
words if random words were shown in training, as 80/10/10 intends. But the difference is only about as large as the
standard deviation. (Devlin et al. 2019, appendix C.2, also find small differences after fine-tuning, and larger ones if
the states are used without it.)
"""
SENTENCES = 4000  # of the toy corpus
WINDOW = 40  # words that a model reads at once
ROWS, RATE = 16, 5e-3
EXAMPLES = 100  # windows among which the one that is shown is looked for
TEST_PART = 0.15  # of the words are masked in the test
SHAPE = Shape(
    width=48, heads=3, layers=2, inner=96, context=64, norm_place="pre", dropout=0.0, positions="relative", furthest=16
)
MEASURES = {
    "accuracy": "masked words\npredicted",
    "loss": "loss,\nmasked",
    "itself": "shown words\npredicted",
    "following": "next word,\nby a probe",
}


@dataclass(frozen=True)
class Setting:
    """Which part of the words is chosen, and what is shown in their place: a mask, a random word, or else the word."""

    part: float
    mask: float
    random: float

    @property
    def kept(self) -> float:
        return max(0.0, 1.0 - self.mask - self.random)

    @property
    def shown(self) -> str:
        return "/".join(f"{100 * one:.0f}" for one in (self.mask, self.random, self.kept))

    @property
    def name(self) -> str:
        return f"{self.part:.0%}, {self.shown}"


BERT = Setting(0.15, 0.8, 0.1)
RATES = tuple(Setting(part, 0.8, 0.1) for part in (0.05, 0.15, 0.3, 0.5))
REPLACEMENTS = tuple(Setting(0.15, *shown) for shown in ((1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.0)))


@dataclass(frozen=True)
class RateResult:
    """The models of one setting, with one number for each seed."""

    name: str
    setting: Setting
    predictions: int  # words to predict in a window
    loss: list[float]  # in nats for each masked word of the test
    accuracy: list[float]  # of the masked words of the test
    itself: list[float]  # of the words of a text without masks, the part that the output layer predicts
    following: list[float]  # of the words of a text without masks, the part whose next word a linear probe predicts


@dataclass(frozen=True, eq=False)
class RunningText:
    """A text as ids of words, end to end: the first nine tenths for training, the rest for the test."""

    tokenizer: Tokenizer
    train: NDArray[np.int64]
    test: NDArray[np.int64]

    def corruption(self, setting: Setting) -> MaskTokens:
        special = self.tokenizer.special_tokens
        assert special.mask is not None
        return MaskTokens(
            special.mask, self.tokenizer.size, special.ids, setting.part, kept=setting.kept, random=setting.random
        )


def load_text(options: MaskingRatesOptions) -> RunningText:
    """The lines of a file, or sentences of the toy language about animals."""
    if options.file:
        lines = [line for line in iterate_lines(options.file) if line.strip()]
    else:
        rng = random.Random(options.seed)
        lines = [" ".join(sentence(rng, rng.choice(ANIMALS))) for _ in range(SENTENCES)]
    tokenizer = train_tokenizer("word", lines, options.vocab, MASK)
    ids = np.array([token for line in tokenizer.encode_batch(lines) for token in line], np.int64)
    train, test = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    if len(test) < 2 * WINDOW:
        raise UserError(f"{options.file}: a text of {len(ids):,} words is too short; give at least {20 * WINDOW:,}.")
    return RunningText(tokenizer, train, test)


def windows(ids: NDArray[np.int64], rows: int, generator: torch.Generator) -> NDArray[np.int64]:
    """Windows (rows, WINDOW) of a text, each from a random place."""
    starts = torch.randint(len(ids) - WINDOW + 1, (rows, 1), generator=generator).numpy()
    return ids[starts + np.arange(WINDOW)]


def corrupt(texts: NDArray[np.int64], corruption: MaskTokens, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What a model reads in place of texts (B, T), and the words that it must predict; other places are ignored."""
    noise = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    rows = corruption(Rows.of([{"text": text} for text in texts]), noise)
    shown, targets = (torch.from_numpy(rows.flat(name).reshape(texts.shape)) for name in ("text", "targets"))
    return shown, targets


def run(options: MaskingRatesOptions, report: Report = no_report) -> Result:
    """Trains an encoder with each rate and each way to show the chosen words, with several seeds."""
    text = load_text(options)
    results = [_measure(text, setting, options, report) for setting in (*RATES, *REPLACEMENTS)]
    untrained = _measure(text, RATES[0], replace(options, steps=0, seeds=1), report).following[0]
    rates, replacements = results[: len(RATES)], [results[RATES.index(BERT)], *results[len(RATES) :]]
    common = np.bincount(text.test).max() / len(text.test)
    note = (
        f"Each number: {seeds_of(options.seeds)}. “predictions” are the words to predict in a window of "
        f"{WINDOW} words. The first two measures are of {TEST_PART:.0%} masked words, the last two of texts without "
        f"masks. Chance, always the most frequent word, is {common:.0%}. The probe of a model that is not trained "
        f"predicts {untrained:.0%} of the next words, mostly from the word that is shown. The loss is in nats."
    )
    sections: list[Section] = [
        prose(__doc__),
        Pre(_example(text, options), "What a model reads (the chosen words are in brackets)"),
        _table("How many words are chosen (80/10/10)", rates, lambda one: f"{one.setting.part:.0%}"),
        _table("What is shown in place of 15 % (mask/random/kept)", replacements, lambda one: one.setting.shown, note),
        _curve(rates),
    ]
    if not options.file:
        sections.append(reading(READING, options))
    about = (
        f"Small encoders ({sizes_of(SHAPE)}) of {text.tokenizer.size} words, {options.seeds} for each setting, each "
        f"{training_of(options.steps, options.seed)} or one of the seeds after it, with {ROWS} windows of {WINDOW} "
        f"words in a step. The text is {options.file or 'sentences about animals and their sounds'}: "
        f"{len(text.train):,} words for training, {len(text.test):,} others for the test."
    )
    data: dict[str, Any] = {"steps": options.steps, "seed": options.seed, "seeds": options.seeds, "chance": common}
    data |= {"untrained": untrained, "models": results}
    return Result("Masking rates", about, data, sections)


def _measure(text: RunningText, setting: Setting, options: MaskingRatesOptions, report: Report) -> RateResult:
    """Trains a model with each seed, and tests each on the same windows."""
    corruption, generator = text.corruption(setting), torch.Generator().manual_seed(2**40 + options.seed)
    known, new = (torch.from_numpy(windows(ids, options.count, generator)) for ids in (text.train, text.test))
    masked, targets = corrupt(new.numpy(), text.corruption(Setting(TEST_PART, 1.0, 0.0)), generator)
    found = RateResult(setting.name, setting, round(setting.part * WINDOW), [], [], [], [])
    for seed in range(options.seed, options.seed + options.seeds):
        torch.manual_seed(seed)
        network = TinyTransformer(SHAPE, text.tokenizer.size)

        def sample(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            return corrupt(windows(text.train, ROWS, generator), corruption, generator)

        name = f"{setting.name}, seed {seed}"
        train(name, network, sample, options.steps, seed, RATE, report)
        with torch.no_grad(), single_thread():
            logits = network.eval()(masked)
            found.loss.append(mean_loss(logits, targets))
            found.accuracy.append(accuracy(logits, targets))
            found.itself.append(accuracy(network(new), new))
            found.following.append(probe_next(network.states(known), known, network.states(new), new))
    return found


def probe_next(known_states: Tensor, known: Tensor, new_states: Tensor, new: Tensor) -> float:
    """How often a linear probe of states (B, T, width), fitted by least squares, predicts the next word of a text."""

    def inputs(states: Tensor) -> Tensor:
        flat = ((states - known_states.mean((0, 1))) / (known_states.std((0, 1)) + 1e-6))[:, :-1].flatten(0, 1)
        return torch.cat([flat, torch.ones(len(flat), 1)], dim=1).double()

    x, words = inputs(known_states), int(max(known.max(), new.max())) + 1
    y = one_hot(known[:, 1:].flatten(), words).double()
    weight = torch.linalg.solve(x.T @ x + torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)  # (width + 1, words)
    return ((inputs(new_states) @ weight).argmax(-1) == new[:, 1:].flatten()).double().mean().item()


def _example(text: RunningText, options: MaskingRatesOptions) -> str:
    """One window of the text, and what each setting shows of it; the words to predict are in brackets.

    The window is the first of a few random ones in which 80/10/10 masks a word, replaces a word and keeps a word.
    """
    for seed in range(options.seed, options.seed + EXAMPLES):
        whole = windows(text.train, 1, torch.Generator().manual_seed(seed))
        shown = {
            setting: corrupt(whole, text.corruption(setting), torch.Generator().manual_seed(seed))
            for setting in (*RATES, *REPLACEMENTS)
        }
        read, targets = shown[BERT]
        chosen, mask = targets != IGNORED, text.tokenizer.special_tokens.mask
        kinds = (read == mask, (read != mask) & (read != targets), read == targets)
        if all((kind & chosen).any() for kind in kinds):
            break
    rows = {"the text": text.tokenizer.pieces(whole[0].tolist())}
    for setting, (read, targets) in shown.items():
        pieces = text.tokenizer.pieces(read[0].tolist())
        rows[setting.name] = [
            f"[{piece}]" if target != IGNORED else piece for piece, target in zip(pieces, targets[0].tolist())
        ]
    lines = []
    for name, words in rows.items():
        lines += [f"{name}:", f"  {' '.join(words[: WINDOW // 2])}", f"  {' '.join(words[WINDOW // 2 :])}"]
    return "\n".join(lines)


def _table(title: str, results: Sequence[RateResult], name: Callable[[RateResult], str], note: str = "") -> Table:
    def cell(one: RateResult, measure: str) -> str:
        values = getattr(one, measure)
        return with_spread(values, 2) if measure == "loss" else f"{with_spread(values, 0, 100)} %"

    rows: list[list[Cell]] = [
        [name(one), one.predictions, *(cell(one, measure) for measure in MEASURES)] for one in results
    ]
    return Table(title, ["", "predictions", *MEASURES.values()], rows, note)


def _curve(results: Sequence[RateResult]) -> Curve:
    """The two accuracies against the rate."""
    xs = [one.setting.part for one in results]
    lines = [
        mean_line(MEASURES[measure].replace("\n", " "), xs, [getattr(one, measure) for one in results])
        for measure in ("accuracy", "following")
    ]
    return Curve("Masking rates with 80/10/10", "part of the words that is chosen", "accuracy", lines, ends=(0, 1))
