"""The linear-chain CRF against all sequences of tags, written out."""

import math
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor, nn

from regard.data.batches import IGNORED, Batch
from regard.entities import complete, continues, may_follow
from regard.errors import UserError
from regard.heads import CrfHeadConfig, TagHeadConfig, best_tags
from regard.layers.crf import LinearChain
from regard.models import HeadedConfig, KimConfig
from regard.objectives import Classification

LENGTHS = (4, 2, 1, 0)
LABELS = 3


def chain(labels: int = LABELS, names: tuple[str, ...] = ()) -> LinearChain:
    torch.manual_seed(1)
    made = LinearChain(labels, names).double()
    for weight in made.parameters():
        nn.init.normal_(weight)
    return made


def emissions(labels: int = LABELS) -> tuple[Tensor, Tensor]:
    """Random emissions with padding between, before and after the words, and what is real of them."""
    real = torch.tensor([[0, 1, 1, 0, 1, 1], [1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0], [0] * 6]).bool()
    return torch.randn(4, 6, labels, dtype=torch.float64, generator=torch.Generator().manual_seed(2)), real


def score(crf: LinearChain, words: Tensor, tags: tuple[int, ...]) -> float:
    """The definition."""
    if not tags:
        return 0.0
    with torch.no_grad():
        total = crf.start[tags[0]] + crf.end[tags[-1]] + sum(word[tag] for word, tag in zip(words, tags))
        return float(total + sum(crf.transitions[one, other] for one, other in pairwise(tags)))


def test_the_partition_sums_over_all_sequences() -> None:
    crf, (logits, real) = chain(), emissions()
    found = crf.log_partition(logits, real)
    for row, there, length in zip(range(4), real, LENGTHS):
        scores = [score(crf, logits[row][there], tags) for tags in product(range(LABELS), repeat=length)]
        expected = torch.tensor(scores, dtype=torch.float64).logsumexp(0)
        torch.testing.assert_close(found[row], expected, atol=1e-12, rtol=0)


def test_the_probability_of_some_tags_is_that_of_all_sequences_that_have_them() -> None:
    crf, (logits, real) = chain(), emissions()
    allowed = torch.rand(logits.shape, generator=torch.Generator().manual_seed(3)) < 0.6
    allowed[..., 0] = True
    found = crf.log_probability(logits, allowed, real)
    for row, there, length in zip(range(4), real, LENGTHS):
        sequences = list(product(range(LABELS), repeat=length))
        scores = {tags: math.exp(score(crf, logits[row][there], tags)) for tags in sequences}
        words = allowed[row][there].tolist()
        some = sum(value for tags, value in scores.items() if all(word[tag] for word, tag in zip(words, tags)))
        assert float(found[row].detach()) == pytest.approx(math.log(some / sum(scores.values())), abs=1e-12)


@pytest.mark.parametrize("names", [(), tuple(complete(["S-A"])), tuple(complete(["B-A", "I-A"]))], ids=str)
def test_the_best_sequence_is_the_best_legal_one(names: tuple[str, ...]) -> None:
    """Also where the emissions prefer illegal ones."""
    labels = len(names) or LABELS
    crf, (logits, real) = chain(labels, names), emissions(labels)
    scheme = "bioes" if "S-A" in names else "iob2"
    found, forbade = crf.best(logits, real), False
    for row, there, length in zip(range(4), real, LENGTHS):
        words, sequences = logits[row][there], list(product(range(labels), repeat=length))
        legal = []
        for tags in sequences:
            around = [None, *(names[tag] for tag in tags), None] if names and tags else []
            if all(may_follow(one, other, scheme) for one, other in pairwise(around)):
                legal.append(tags)
        best = max(legal, key=lambda tags: score(crf, words, tags))
        forbade |= score(crf, words, best) < max(score(crf, words, tags) for tags in sequences)
        assert tuple(found[row][there].tolist()) == best
    assert forbade == bool(names)


@pytest.mark.parametrize("names", [tuple(complete(["S-A"])), tuple(complete(["B-A", "I-B"]))], ids=["bioes", "iob2"])
def test_the_probability_of_an_entity_is_that_of_all_sequences_in_which_it_ends(names: tuple[str, ...]) -> None:
    """Also of tags that are not legal. No tag beside the entity may continue it, or be continued by it."""
    crf, (logits, real) = chain(len(names), names), emissions(len(names))
    spans = [(0, 0, 1), (0, 1, 3), (0, 3, 4), (0, 0, 4), (1, 0, 1), (1, 1, 2), (2, 0, 1)]
    weights = [
        {tags: math.exp(score(crf, words[there], tags)) for tags in product(range(len(names)), repeat=length)}
        for words, there, length in zip(logits, real, LENGTHS)
    ]
    for draw in range(4):
        tags = torch.randint(len(names), real.shape, generator=torch.Generator().manual_seed(draw))
        found = crf.entity_log_probability(logits, tags, torch.tensor(spans), real).exp().tolist()
        for (row, first, after), probability in zip(spans, found):
            own, some = tuple(tags[row][real[row]].tolist()[first:after]), 0.0
            for one, weight in weights[row].items():
                beside = [place for place in (first - 1, after - 1) if 0 <= place < len(one) - 1]
                joined = any(continues(names[one[place]], names[one[place + 1]]) for place in beside)
                some += weight * (one[first:after] == own and not joined)
            assert probability == pytest.approx(some / sum(weights[row].values()), abs=1e-12)


def test_padding_and_other_rows_change_nothing() -> None:
    crf, (logits, real) = chain(), emissions()
    allowed = torch.zeros_like(logits, dtype=torch.bool)
    allowed[..., 1] = True
    whole = crf.log_probability(logits, allowed, real)
    for row, there in enumerate(real):
        if there.any():
            alone = crf.log_probability(logits[row][there][None], allowed[row][there][None])
            torch.testing.assert_close(whole[row], alone[0], atol=1e-12, rtol=0)
    assert whole[3] == 0


def test_gradients_are_exact_and_finite() -> None:
    crf, (logits, real) = chain(), emissions()
    allowed = torch.ones_like(logits, dtype=torch.bool)
    allowed[:, :, 0] = False
    assert torch.autograd.gradcheck(
        lambda one, *weights: crf.log_probability(one, allowed, real), (logits.requires_grad_(), *crf.parameters())
    )


def test_autocast_computes_in_float32() -> None:
    crf, (logits, real) = chain().float(), emissions()
    allowed = torch.ones_like(logits, dtype=torch.bool)
    allowed[..., 0] = False
    expected = crf.log_probability(logits.bfloat16().float(), allowed, real)
    with torch.autocast("cpu", torch.bfloat16):
        found = crf.log_probability(logits.bfloat16(), allowed, real)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


def headed(head: CrfHeadConfig | TagHeadConfig) -> nn.Module:
    torch.manual_seed(0)
    body = KimConfig(vocab=9, kernels=(2,), filters=4, embed=3)
    return HeadedConfig(body, head).build().eval()


def batch() -> Batch:
    tokens = torch.tensor([[4, 5, 6], [7, 8, 0]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    targets = torch.tensor([[0, 1, 2], [2, IGNORED, IGNORED]])
    return Batch({"tokens": tokens, "targets": targets}, {"tokens": real}, {"tokens": 5, "targets": 5})


def test_the_objective_is_the_probability_of_the_tags_and_a_missing_tag_may_be_any() -> None:
    model, texts = headed(CrfHeadConfig(3)), batch()
    with torch.no_grad():
        sums, _ = Classification()(model, texts, 0)
        crf, logits = model.get_submodule("head"), model(texts)
        assert isinstance(crf, LinearChain)
        parts = [score(crf, logits[0], (0, 1, 2)) - float(crf.log_partition(logits[:1])[0])]
        pair = logits[1:, :2]
        some = torch.tensor([score(crf, pair[0], (2, tag)) for tag in range(3)]).logsumexp(0)
        parts.append(float(some - crf.log_partition(pair)[0]))
        best = best_tags(model, logits, texts.real["tokens"])
    assert float(sums["nll"]) == pytest.approx(-sum(parts), abs=1e-5)
    assert int(sums["right"]) == int((best == texts["targets"]).sum())


def test_a_chain_without_scores_has_the_product_of_its_places() -> None:
    logits, real = emissions()
    with torch.no_grad():
        found = LinearChain(LABELS).entity_log_probability(
            logits, torch.ones_like(real, dtype=torch.long), torch.tensor([[0, 1, 3]]), real
        )
    torch.testing.assert_close(found.exp()[0], logits.softmax(-1)[0, [2, 4], 1].prod())


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"objective.class_weights: .*head=tag"):
        Classification(class_weights="balanced").modules(headed(CrfHeadConfig(3)), {})
    with pytest.raises(UserError, match=r"head.labels=2"):
        CrfHeadConfig(2, ("B-A", "I-A", "O"))
