"""GPT's input transformations and its auxiliary loss (Radford et al. 2018, §3.2 and §3.3), against written-out ones."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch, collate
from regard.data.joined import JoinedText
from regard.data.text_pairs import RatedPairs
from regard.data.tokenizers import BOS, EOS, train_tokenizer
from regard.errors import UserError
from regard.heads import ChoiceHeadConfig, ClassHeadConfig, NumberHeadConfig
from regard.models import BertConfig, GptConfig, HeadedConfig
from regard.objectives import Classification, Regression
from regard.objectives.classify import next_tokens
from regard.objectives.objective import LossModule
from regard.tasks import TASKS

TOKENIZER = train_tokenizer("word", ["rain falls on the roof"], 20)
GPT = GptConfig(vocab=TOKENIZER.size, width=8, heads=2, layers=1, inner=12, context=16, dropout=0.0)
HEADS = {"pair": ClassHeadConfig(labels=2), "similarity": NumberHeadConfig(), "choice": ChoiceHeadConfig()}


def _model(head: object) -> HeadedConfig:
    torch.manual_seed(3)
    return HeadedConfig(GPT, head.for_body(GPT)).build().double().eval()  # type: ignore[attr-defined, no-any-return]


def _batch(task: str, values: list[object], targets: list[float]) -> Batch:
    field, target = TASKS[task].fields["text"](TOKENIZER), "number" if task == "similarity" else "label"  # type: ignore[call-arg]
    kind = np.float32 if task == "similarity" else np.int64
    rows = [
        {"text": array, target: np.array([one], kind)}
        for array, one in zip(field.encode(values), targets)  # type: ignore[arg-type]
    ]
    return collate(rows, TASKS[task])  # type: ignore[arg-type]


def _ids(*texts: str) -> Tensor:
    """Start, text, delimiter, text, extract."""
    first, *others = TOKENIZER.encode_batch(list(texts))
    return torch.tensor([BOS, *first, *(token for ids in others for token in (EOS, *ids)), EOS])


def _language(model: HeadedConfig, *texts: Tensor) -> Tensor:
    """−Σ log p(next token) of each text alone, with the token embeddings as the output layer."""
    total = torch.zeros((), dtype=torch.double)
    for ids in texts:
        logits = model.body.features(ids[None])[0] @ model.body.embedding.tokens.weight.T  # type: ignore[attr-defined]
        total = total + F.cross_entropy(logits[:-1], ids[1:], reduction="sum")
    return total


def _last(model: HeadedConfig, ids: Tensor) -> Tensor:
    """The state of the extract token."""
    return model.body.features(ids[None])[0, -1]  # type: ignore[attr-defined, no-any-return]


def test_entailment_joins_premise_and_hypothesis_by_a_delimiter() -> None:
    model, texts = _model(HEADS["pair"]), [("rain falls", "the roof"), ("rain", "falls on the roof")]
    sums, _ = Classification(language=0.5)(model, _batch("pair", texts, [0, 1]), 0)  # type: ignore[arg-type]
    ids = [_ids(*pair) for pair in texts]
    logits = torch.stack([model.head.out(_last(model, one)) for one in ids])  # type: ignore[attr-defined]
    torch.testing.assert_close(sums["nll"], F.cross_entropy(logits, torch.tensor([0, 1]), reduction="sum"))
    torch.testing.assert_close(sums["language"], _language(model, *ids))


def test_similarity_adds_the_states_of_both_orders() -> None:
    model, pair = _model(HEADS["similarity"]), ("rain falls", "roof")
    value = RatedPairs(both_orders=True).value(pair)
    batch = _batch("similarity", [value, value], [2.0, 4.0])
    model.head.count_batch(batch)  # type: ignore[attr-defined]
    orders = [_ids(*pair), _ids(*reversed(pair))]
    vector = _last(model, orders[0]) + _last(model, orders[1])
    expected = 3.0 + model.head.out(vector)  # type: ignore[attr-defined]  # their mean is 3, their deviation 1
    torch.testing.assert_close(model(batch), expected.expand(2))  # type: ignore[operator]
    sums, _ = Regression(language=0.5)(model, batch, 0)
    torch.testing.assert_close(sums["language"], 2 * _language(model, *orders))
    torch.testing.assert_close(sums["nll"], (expected - 2.0).square().sum() + (expected - 4.0).square().sum())


def test_each_choice_is_read_after_the_context() -> None:
    model = _model(HEADS["choice"])
    parts = [("rain falls", one) for one in ("on the roof", "roof", "the rain")]
    batch = _batch("choice", [tuple(parts)], [1])
    ids = [_ids(*one) for one in parts]
    logits = torch.cat([model.head.out(_last(model, one)) for one in ids])  # type: ignore[attr-defined]
    torch.testing.assert_close(model(batch), logits[None])  # type: ignore[operator]
    sums, _ = Classification(language=0.5)(model, batch, 0)
    torch.testing.assert_close(sums["nll"], F.cross_entropy(logits, torch.tensor(1)))
    torch.testing.assert_close(sums["language"], _language(model, *ids))
    assert Classification(language=0.5).count(batch) == {"nll": 1, "overlap": 1, "language": sum(map(len, ids)) - 3}


def test_the_choices_of_a_row_stay_in_their_row() -> None:
    model = _model(HEADS["choice"])
    rows = [[(context, one) for one in ("on the roof", "roof", "the rain")] for context in ("rain falls", "the roof")]
    alone = [torch.cat([model.head.out(_last(model, _ids(*one))) for one in row]) for row in rows]  # type: ignore[attr-defined]
    torch.testing.assert_close(model(_batch("choice", list(map(tuple, rows)), [1, 0])), torch.stack(alone))  # type: ignore[operator]


@pytest.mark.parametrize("objective", [Classification, Regression])
def test_the_weight_of_the_language_model(objective: Callable[..., Classification | Regression]) -> None:
    assert objective(language=0.5).weights["language"] == 0.5
    assert "language" not in objective().weights
    with pytest.raises(UserError, match=r"objective\.language=-1: give 0 \(none\) or more"):
        objective(language=-1)


@pytest.mark.parametrize(
    "body", [BertConfig(vocab=20, width=8, heads=2, layers=1), GptConfig(vocab=20, width=8, heads=2, tied=False)]
)
def test_a_body_that_predicts_no_next_token_is_refused(body: BertConfig | GptConfig) -> None:
    model = HeadedConfig(body, ClassHeadConfig(labels=2).for_body(body)).build()
    with pytest.raises(UserError, match=r"objective\.language: needs a causal model under a head"):
        LossModule(model, Classification(language=0.5))


def test_the_next_tokens_of_padded_texts() -> None:
    tokens = torch.tensor([[5, 6, 7], [8, 9, 0], [0, 0, 0]])
    real = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
    assert next_tokens(tokens, real).tolist() == [[6, 7, IGNORED], [9, IGNORED, IGNORED], [IGNORED] * 3]
    assert next_tokens(tokens[:1], None).tolist() == [[6, 7, IGNORED]]


def test_the_joined_text_of_a_language_model() -> None:
    field = JoinedText(TOKENIZER)
    assert field.encode([("rain falls", "roof")])[0][:, 0].tolist() == _ids("rain falls", "roof").tolist()
