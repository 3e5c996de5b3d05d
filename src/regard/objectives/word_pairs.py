"""Word2vec: words that predict the words near them, by negative sampling or hierarchical softmax.

Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality". The definition is
`definition`: one prediction at a time. The fast route, `update`, computes the predictions of some blocks of text at
once, as products of matrices, with negatives that the predictions of a block share (Ji et al. 2016).
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.data.words import Ids, Sentences
from regard.errors import UserError
from regard.models.word_vectors import Skipgram
from regard.objectives.hogwild import Piece, PieceSums, SharedTrainer, check_workers
from regard.objectives.objective import SCHEDULE, Objective, Rate, Sums

MOST_WORDS = 512  # centres of one update
# The most that one update may change a row: the rate times the predictions that the row takes part in; proportionally
# less for vectors below the width WIDE. With 8, updates of WikiText-2 have 512 centres, and its loss is that of smaller
# updates. Vocabularies of some dozen words diverge from about 5 on if objective.sample=0 keeps all of the text.
MOST_CHANGE, WIDE = 8.0, 100
# The largest rate × Σ total of a word that skip-gram reads in one update. A passage repeats its words, so that the
# product reaches 40 at the default settings; from 8 on, vectors of WikiText-2 grow to several times their usual length.
# Also the largest rate × weight of a noise word in one block.
MOST_SUM = 4.0
# From this logit on, an update of skip-gram has a lower rate. Both matrices change at once, each by the rows of the
# other, so that a row that overshoots makes the next change larger. Running text stays below 15 by default.
MOST_LOGIT = 20.0
LEAST_READ = 1e-3  # the smallest part of a text that the sub-sampling may leave
# All centres change the root of a Huffman tree, but in many directions, so the root is counted as if a part of them
# changed it. The part was tried out on small texts: it makes blocks of 4 to 52 centres.
ROOT_SHARE = 1 / 4
NEGATIVES = 16  # negatives that the predictions of a block share


class Blocks(NamedTuple):
    """Blocks of a text: in each, I words in order, of which the T words in the middle are predicted (centres)."""

    inputs: Tensor  # (B, I) ids
    centres: Tensor  # (B, T) ids
    near: Tensor  # (B, I, T) 1.0 where word i is in the context of centre t


class Targets(NamedTuple):
    """The rows of the output matrix that are compared with each of the X predictors of a block, and how.

    The loss is −Σ positive · log σ(logit) − Σ (total − positive) · log σ(−logit).
    """

    outputs: Tensor  # (B, O) rows
    positive: Tensor  # (B, X, O)
    total: Tensor  # (B, X, O)


class TargetTable(Protocol):
    """What a prediction is compared with: noise, or the nodes of a tree."""

    weight: float  # the weight of a comparison with noise or with a node

    def targets(self, centres: Tensor, pairs: Tensor, random: np.random.Generator) -> Targets:
        """The targets of blocks; `pairs` (B, X, T) is 1 where x predicts centre t."""
        ...

    def largest_share(self, frequencies: NDArray[np.float64]) -> float:
        """About how many predictions change the most frequent row, for each centre that is predicted once."""
        ...

    def loss(self, predictor: Tensor, centre: int, noise: Sequence[int], output: Tensor) -> Tensor:
        """The definition: the loss of one predictor (D,) of one centre, with the noise that its block shares."""
        ...


@dataclass(frozen=True)
class WordPairs(Objective):
    """What negative sampling and hierarchical softmax share: the contexts of words, and the trainer."""

    heads: ClassVar[tuple[str, ...]] = ("words",)
    learns_by: ClassVar[str] = "pairs"
    plan_settings: ClassVar[tuple[str, ...]] = SCHEDULE
    block: ClassVar[int]  # centres of a block

    window: int = 5  # the largest number of context words on each side; each word draws a number up to this one
    sample: float = 1e-3  # t: a word of frequency f stays in the text with probability √(t/f) + t/f; 0: all stay
    workers: int = 1  # CPU processes that share the matrices; a resumed run is bit-equal with one, not with several

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 100:
            raise UserError(f"objective.window={self.window}: give a number from 1 to 100, such as 5.")
        if not 0 <= self.sample <= 1:
            raise UserError(f"objective.sample={self.sample}: give a number from 0 (none) to 1, such as 1e-3.")
        check_workers(self.workers)

    @abstractmethod
    def table(self, counts: Ids) -> TargetTable:
        """What predictions are compared with, for words with these counts."""
        ...

    def trainer(self, model: Skipgram, batches: Any, plan: Any, rate: Rate) -> PairTrainer:
        return PairTrainer(self, model, batches, plan, rate)

    def sums(self, model: Any, batch: Batch) -> Sums:
        raise UserError("the trainer computes the loss: it needs the lines and counts of the text.")


@dataclass(frozen=True)
class NegativeSampling(WordPairs):
    """Each prediction is compared with `negatives` words drawn with probability ∝ count^0.75 (the noise).

    Loss of a predictor h of the word c: −log σ(u_c · h) − Σₙ log σ(−uₙ · h). A negative that is c counts for nothing.
    """

    block: ClassVar[int] = 16

    negatives: int = 5  # number of noise words for each prediction

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.negatives <= 100:
            raise UserError(f"objective.negatives={self.negatives}: give a number from 1 to 100, such as 5.")

    def table(self, counts: Ids) -> Noise:
        return Noise(counts, self.negatives)


@dataclass(frozen=True)
class HierarchicalSoftmax(WordPairs):
    """The probability of a word is the product of the decisions on the way to it in a Huffman tree (Morin & Bengio).

    Loss of a predictor h of the word c: −Σ log σ(±uₙ · h) over the inner nodes n on the path to c; + is left.
    """

    block: ClassVar[int] = 4

    def table(self, counts: Ids) -> HuffmanTree:
        return HuffmanTree(counts)


class Noise:
    """The noise distribution, ∝ count^0.75, and `NEGATIVES` draws from it that the predictions of a block share.

    Each draw has the weight negatives / NEGATIVES, so that the expected loss is that of `negatives` draws for each
    prediction.
    """

    def __init__(self, counts: Ids, negatives: int) -> None:
        self._cumulated = np.cumsum(counts.astype(np.float64) ** 0.75)
        self._negatives, self.weight = negatives, negatives / NEGATIVES

    def draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Ids:
        """Words of the noise."""
        places = random.random(shape, np.float32) * self._cumulated[-1]
        return np.minimum(np.searchsorted(self._cumulated, places, side="right"), len(self._cumulated) - 1)

    def targets(self, centres: Tensor, pairs: Tensor, random: np.random.Generator) -> Targets:
        drawn = torch.from_numpy(self.draw((len(centres), NEGATIVES), random)).to(centres.device)  # (B, N)
        differ = (centres[:, :, None] != drawn[:, None]).to(pairs)  # (B, T, N)
        negative = (pairs @ differ).mul_(self.weight)  # (B, X, N)
        positive = torch.cat([pairs, torch.zeros_like(negative)], -1)
        return Targets(torch.cat([centres, drawn], 1), positive, torch.cat([pairs, negative], -1))

    def largest_share(self, frequencies: NDArray[np.float64]) -> float:
        return float((frequencies + self._negatives * np.diff(self._cumulated, prepend=0) / self._cumulated[-1]).max())

    def loss(self, predictor: Tensor, centre: int, noise: Sequence[int], output: Tensor) -> Tensor:
        negative = [F.logsigmoid(-output[word] @ predictor) for word in noise if word != centre]
        return -F.logsigmoid(output[centre] @ predictor) - self.weight * sum(negative, predictor.new_zeros(()))


class HuffmanTree:
    """The Huffman tree of words by their counts: frequent words have short paths. Node n is row n of `output`."""

    weight = 1.0

    def __init__(self, counts: Ids) -> None:
        self.paths = _huffman_paths(counts)
        longest = max(map(len, self.paths), default=0)
        nodes, signs = np.zeros((len(counts), longest), np.int64), np.zeros((len(counts), longest), np.float32)
        for word, path in enumerate(self.paths):
            nodes[word, : len(path)] = [node for node, _ in path]
            signs[word, : len(path)] = [sign for _, sign in path]
        self._nodes, self._signs = torch.from_numpy(nodes), torch.from_numpy(signs)

    def targets(self, centres: Tensor, pairs: Tensor, random: np.random.Generator) -> Targets:
        signs = self._signs[centres.cpu()].to(pairs)  # (B, T, L): 1 left, −1 right, 0 after the end of the path
        depth = int((signs != 0).any(0).any(0).sum())
        nodes, signs = self._nodes[centres.cpu(), :depth].to(centres), signs[..., :depth]
        weights = (pairs[..., None] * (signs != 0)[:, None]).flatten(2)  # (B, X, T · L)
        return Targets(nodes.flatten(1), weights * (signs > 0).flatten(1)[:, None], weights)

    def largest_share(self, frequencies: NDArray[np.float64]) -> float:
        return ROOT_SHARE

    def loss(self, predictor: Tensor, centre: int, noise: Sequence[int], output: Tensor) -> Tensor:
        steps = [F.logsigmoid(sign * output[node] @ predictor) for node, sign in self.paths[centre]]
        return -sum(steps, predictor.new_zeros(()))


def _huffman_paths(counts: Ids) -> list[list[tuple[int, float]]]:
    """For each word, the inner nodes from the root to it, each with +1 (left) or −1 (right); none for a count of 0."""
    words = np.flatnonzero(counts)
    heap = [(int(counts[word]), order, int(word)) for order, word in enumerate(words)]
    heapq.heapify(heap)
    size, above = len(counts), dict[int, tuple[int, float]]()  # word or size + node → the node above it, and the side
    for node in range(len(words) - 1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        above[left[2]], above[right[2]] = (node, 1.0), (node, -1.0)
        heapq.heappush(heap, (left[0] + right[0], len(words) + node, size + node))
    paths: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    for word in words.tolist():
        at = word
        while at in above:
            paths[word].append(above[at])
            at = size + above[at][0]
        paths[word].reverse()
    return paths


def definition(
    model: Skipgram, table: TargetTable, words: Sequence[int], reach: Sequence[int], noise: Sequence[int]
) -> Tensor:
    """The loss of one line, one prediction at a time: the context of word t is `reach[t]` words on each side of it."""
    total = torch.zeros((), dtype=model.output.dtype)
    for t, centre in enumerate(words):
        context = [p for p in range(max(0, t - reach[t]), min(len(words), t + reach[t] + 1)) if p != t]
        for places in model.examples(context):
            vectors = model.embedding.weight[[words[place] for place in places]]
            mean = vectors.mean(0).detach() + vectors.sum(0) - vectors.sum(0).detach()  # each gets the whole gradient
            total = total + table.loss(mean, centre, noise, model.output)
    return total


def make_blocks(words: Ids, lines: Ids, reach: Ids, block: int, window: int) -> Blocks:
    """The blocks of some words in order; the context of word t is `reach[t]` words of its line on each side of it."""
    count = -(-len(words) // block)
    around, after = np.zeros(window, np.int64), np.zeros(window + count * block - len(words), np.int64)
    places = np.arange(count)[:, None] * block + np.arange(block + 2 * window)  # (B, I)
    inputs = torch.from_numpy(np.concatenate([around, words, after])[places])
    of_line = torch.from_numpy(np.concatenate([around - 1, lines, after - 1])[places])
    reached = torch.from_numpy(np.concatenate([reach, after[window:]]).reshape(count, 1, block))
    middle = slice(window, window + block)
    distance = (torch.arange(block + 2 * window)[:, None] - torch.arange(window, window + block)).abs()  # (I, T)
    near = (distance > 0) & (distance <= reached) & (of_line[:, :, None] == of_line[:, None, middle])
    return Blocks(inputs, inputs[:, middle], near.float())


@torch.no_grad()
def update(model: Skipgram, blocks: Blocks, targets: Targets, mean: Tensor | None, rate: float) -> Tensor:
    """One step of gradient descent on the loss of blocks, in place; returns the logits (B, X, O) before it.

    `mean` (B, X, I) is the second result of `model.pairs`. Without it, words that are read often have a lower rate
    (`input_rates`), and so has an update with very large logits (`damped_rate`).
    """
    width = model.output.shape[1]
    inputs, outputs = blocks.inputs.flatten(), targets.outputs.flatten()
    read = model.embedding.weight.index_select(0, inputs).view(*blocks.inputs.shape, width)  # (B, I, D)
    predictors = read if mean is None else mean @ read  # (B, X, D)
    compared = model.output.index_select(0, outputs).view(*targets.outputs.shape, width)  # (B, O, D)
    logits = predictors @ compared.mT
    slopes = torch.addcmul(targets.positive, targets.total, logits.sigmoid(), value=-1)  # (B, X, O)
    if mean is None:
        damped = damped_rate(rate, logits)
        of_words = input_rates(blocks.inputs, targets.total, len(model.output), damped)
        changes = (slopes * of_words) @ compared  # (B, I, D)
        slopes *= damped
    else:
        slopes *= rate
        changes = blocks.near @ (slopes @ compared)
    model.output.index_add_(0, outputs, (slopes.mT @ predictors).view(-1, width))
    model.embedding.weight.index_add_(0, inputs, changes.view(-1, width))
    return logits


def damped_rate(rate: float, logits: Tensor) -> Tensor:
    """The rate of an update: smaller by (MOST_LOGIT / largest logit)² if a logit is larger than MOST_LOGIT."""
    if not logits.numel():  # the tree of one word has no node
        return logits.new_tensor(rate)
    least, most = logits.aminmax()
    largest = torch.maximum(-least, most).clamp_(min=MOST_LOGIT)
    return rate * (MOST_LOGIT / largest).square_()


def input_rates(inputs: Tensor, total: Tensor, size: int, rate: Tensor) -> Tensor:
    """The rates (B, I, 1) of the words that are read, of `size` words: at most `MOST_SUM` / Σ total of a word.

    All changes of a word's row follow from its value before the update, so that the row overshoots if they are many.
    """
    words = inputs.flatten()
    sums = total.new_zeros(size).index_add_(0, words, total.sum(2).flatten()).index_select(0, words)
    return (MOST_SUM / sums).clamp_(max=rate).view(*inputs.shape, 1)


class PairTrainer(SharedTrainer):
    """Trains CBOW or skip-gram. Step n reads part n of the text; its random numbers depend only on n and the seed."""

    term = "nll"
    shortest, longest = 1000, 10_000  # tokens

    def __init__(self, objective: WordPairs, model: Skipgram, batches: Sentences, plan: Any, rate: Rate) -> None:
        super().__init__(model, batches, plan, rate, objective.workers)
        self._objective = objective
        counts = batches.counts(len(model.output))
        self._table, self._kept = objective.table(counts), kept_fraction(counts, objective.sample)
        read = counts * self._kept.astype(np.float64)
        if read.sum() < LEAST_READ * counts.sum():
            why = f"leaves less than {LEAST_READ:.1%} of the text to learn from"
            raise UserError(f"objective.sample={objective.sample:g}: {why}; raise it, or give 0.")
        share = self._table.largest_share(read / read.sum())
        change = plan.rate * (objective.window + 1)  # of a row, for each centre that it is compared with
        wide = min(1, model.output.shape[1] / WIDE)
        words = max(1, int(min(MOST_WORDS, MOST_CHANGE * wide / (change * share))))
        self._block = max(1, int(min(objective.block, words, MOST_SUM * wide / (change * self._table.weight))))
        self._at_once = words // self._block  # blocks of one update

    def state(self) -> dict[str, Tensor]:
        """Nothing: the matrices are the model."""
        return {}

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        pass

    def span(self, step: int) -> tuple[int, int]:
        return self._batches.span(step)

    def train_piece(self, piece: Piece) -> PieceSums:
        """Train on a piece of a step. Returns the loss of its first blocks, and the number of their predictions."""
        objective, random = self._objective, np.random.default_rng((self._batches.seed, piece.step, piece.number))
        words, lines = self._batches.words(piece.start, piece.stop)
        stays = random.random(len(words), np.float32) < self._kept[words]
        words, lines = words[stays], lines[stays]
        reach = random.integers(1, objective.window, size=len(words), endpoint=True)
        loss = measured = 0.0
        blocks = make_blocks(words, lines, reach, self._block, objective.window)
        blocks = Blocks(*(part.to(self._model.output.device) for part in blocks))
        pairs, mean = self._model.pairs(blocks.near)
        targets = self._table.targets(blocks.centres, pairs, random)
        for at in range(0, len(pairs), self._at_once):
            part = slice(at, at + self._at_once)
            some = Blocks(*(tensor[part] for tensor in blocks))
            compared = Targets(*(tensor[part] for tensor in targets))
            logits = update(self._model, some, compared, None if mean is None else mean[part], piece.rate)
            if not at:
                loss, measured = float(total_loss(logits, compared)), float(pairs[part].sum())
        return np.array([loss, measured])


def kept_fraction(counts: Ids, sample: float) -> NDArray[np.float32]:
    """The probability √(t/f) + t/f, at most 1, with which a word of frequency f stays in the text; t = 0: 1."""
    if not sample:
        return np.ones(len(counts), np.float32)
    ratio = sample * counts.sum() / np.maximum(counts, 1)  # t / f
    return np.minimum(np.sqrt(ratio) + ratio, 1).astype(np.float32)


def total_loss(logits: Tensor, targets: Targets) -> Tensor:
    """The loss of blocks from their logits (B, X, O): Σ total · softplus(logit) − positive · logit."""
    return (targets.total * F.softplus(logits) - targets.positive * logits).sum()
