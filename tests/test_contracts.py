"""What every model promises, whatever its family. A new model is one more line in FAMILIES and is held to all of it.

Weights are random and in float64, so that what should be equal is equal to 1e-9, and what is off by a rounding of
float32 is not.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoded import (
    answer_columns,
    joined_columns,
    labelled_columns,
    pair_columns,
    related_columns,
    rows_of,
    tagged_columns,
    text_columns,
    whole_columns,
)
from regard.attention import Memory
from regard.checks import DOES_NOT_APPLY, FAILED, doctor, model_calls
from regard.data.batches import IGNORED, Batch, collate
from regard.data.tokenizers import BOS, EOS
from regard.decode import Hypotheses, beam, collect, greedy, stream
from regard.heads import (
    ChoiceHeadConfig,
    ClassHeadConfig,
    CrfHeadConfig,
    KeysHeadConfig,
    NumberHeadConfig,
    SpanHeadConfig,
    TagHeadConfig,
    VectorHeadConfig,
)
from regard.layers.product import Product
from regard.layers.recurrent import KERNELS
from regard.layers.transformer import Block, Shape
from regard.models import (
    MODELS,
    BertConfig,
    BigramConfig,
    BiLstmConfig,
    CaptionerConfig,
    CbowConfig,
    Context2vecConfig,
    ConvS2sConfig,
    ElmoConfig,
    GloveConfig,
    GnmtConfig,
    GptConfig,
    HeadedConfig,
    KimConfig,
    LstmnConfig,
    MaskedLstmConfig,
    Model,
    ModelConfig,
    RecurrentLmConfig,
    Seq2SeqConfig,
    SkipgramConfig,
    StructuredConfig,
    TcnConfig,
    TransformerConfig,
    TwoDirectionsConfig,
)
from regard.models.recurrent_decoders import DECODERS
from regard.readers import edit
from regard.recording import attentions, observe, record
from regard.scores import NOT_FOR_A_SOURCE, NOT_FOR_SELF_ATTENTION, SCORES, WINDOWS
from regard.tasks import TASKS, task_of
from regard.tensor_tree import signature, tensors, with_tensors
from regard.verbs.numbers import Inputs

Ids = tuple[list[int], list[int]]  # a source and a target, which is also the text or has the label

VOCAB, LONGEST = 13, 12
SEQ = Seq2SeqConfig(source_vocab=VOCAB, target_vocab=VOCAB, width=8, embed=6, capacity=LONGEST, radius=2, dropout=0.1)
BIGRAM = BigramConfig(vocab=VOCAB, k=0.5)
LSTMN = LstmnConfig(vocab=VOCAB, width=8, embed=6, context=LONGEST, dropout=0.1)
RECURRENT = RecurrentLmConfig(vocab=VOCAB, width=8, embed=6, layers=2, dropout=0.1)
ELMO = ElmoConfig(
    vocab=VOCAB,
    width=8,
    cells=10,
    cell_clip=1.0,
    state_clip=1.0,
    characters=6,
    embed=4,
    kernels=(1, 3),
    filters=(8, 16),
    dropout=0.1,
    direction="forward",
)
TCN = TcnConfig(vocab=VOCAB, width=8, embed=6, layers=2, kernel=2, dropout=0.1)
PIXELS = CaptionerConfig(image=8, target_vocab=VOCAB, width=8, embed=6, blocks=2, dropout=0.1)
FEATURES = replace(PIXELS, encoder="features", image=5, grid=3)
GNMT = GnmtConfig(source_vocab=VOCAB, target_vocab=VOCAB, width=8, embed=6, layers=3, capacity=LONGEST, dropout=0.1)
CONVS2S = ConvS2sConfig(
    source_vocab=VOCAB, target_vocab=VOCAB, width=8, layers=3, channels=(6, 10), context=2 * LONGEST, dropout=0.1
)
STRUCTURED = StructuredConfig(vocab=VOCAB, labels=VOCAB, width=8, embed=6, hops=3, attention=5, dropout=0.1)
MASKED_LSTM = MaskedLstmConfig(vocab=VOCAB, width=8, embed=6, layers=2, dropout=0.1)
CONTEXT2VEC = Context2vecConfig(vocab=VOCAB, width=8, embed=6, inner=10, layers=2, dropout=0.1)
KIM = KimConfig(vocab=VOCAB, labels=VOCAB, kernels=(2, 3, 9), filters=4, embed=6)
BILSTM = BiLstmConfig(vocab=VOCAB, labels=VOCAB, width=8, embed=6, filters=4, character_embed=3, dropout=0.1)

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "layers": 2, "inner": 12, "context": 2 * LONGEST, "furthest": 6}
GPT = GptConfig(vocab=VOCAB, **SMALL)
BERT = BertConfig(vocab=VOCAB, mask=3, specials=(0, 1, 2, 3), **SMALL)
TRANSFORMER = TransformerConfig(source_vocab=VOCAB, target_vocab=VOCAB, **SMALL)
T5: dict[str, Any] = {"positions": "t5", "buckets": 6, "norm": "rms", "score": "dot", "attention_bias": False}
XL: dict[str, Any] = {"positions": "xl", "memory": 2 * LONGEST, "attention_bias": False}
AWD: dict[str, Any] = {"embed": 8, "hidden": 10, "tied": True, "layers": 3, "weight_drop": 0.2, "variational": True}
ADAPTIVE: dict[str, Any] = {"softmax": "adaptive", "cutoffs": (5, 9), "divide": 2}
CLUSTERED: dict[str, Any] = {"softmax": "adaptive", "cutoffs": (5, 9), "divide": 2, "projections": (0,)}


def classifier(body: ModelConfig, **settings: Any) -> HeadedConfig:
    return HeadedConfig(body, ClassHeadConfig(VOCAB, **settings).for_body(body))


def both(body: Any) -> TwoDirectionsConfig:
    return TwoDirectionsConfig(replace(body, direction="both"))


FAMILIES: dict[str, ModelConfig] = {  # these are also trained
    "once": replace(SEQ, decoder="once", cell="lstm", layers=2),
    "every": replace(SEQ, decoder="every"),
    "bahdanau": replace(SEQ, decoder="bahdanau", layers=2),
    "luong": replace(SEQ, decoder="luong", score="general", cell="lstm", layers=2),
    "luong-feeding": replace(SEQ, decoder="luong-feeding", score="dot", cell="rnn", layers=2),
    "local-p": replace(SEQ, decoder="luong-feeding", score="general", window="local-p"),
    "caption": PIXELS,
    "caption-once": replace(PIXELS, decoder="once", layers=2),
    "caption-hard": replace(PIXELS, attention="hard", cell="gru"),
    "caption-features": FEATURES,
    "caption-frames": replace(FEATURES, encoder="frames", grid=6),
    "gnmt": GNMT,
    "convs2s": CONVS2S,
    "bigram": BIGRAM,
    "lstm": RECURRENT,
    "elmo": ELMO,
    "tcn": TCN,
    "lstmn": LSTMN,
    "structured": STRUCTURED,
    "kim": KIM,
    "context2vec": CONTEXT2VEC,
    "masked-lstm": MASKED_LSTM,
    "bilstm": BILSTM,
    "gpt": GPT,
    "xl": replace(GPT, **XL, norm_place="post"),
    "xl-adaptive": replace(GPT, **XL, windows=(2 * LONGEST - 1,), norm_place="pre", **CLUSTERED),
    "bert": BERT,
    "electra": replace(BERT, outputs=("replaced",), embed=6),
    "transformer": TRANSFORMER,
    "t5": replace(TRANSFORMER, **T5, feed_bias=False, gated=True, shared="all", scaled=False, readout_scale=0.5),
    "cbow": CbowConfig(vocab=VOCAB, width=6),
    "skipgram": SkipgramConfig(vocab=VOCAB, width=6),
    "glove": GloveConfig(vocab=VOCAB, width=6),
    "lstm-both": both(RECURRENT),
    "bigram-both": both(BIGRAM),
    "elmo-both": both(ELMO),
    "bert-class": classifier(BERT),
    "gpt-class": classifier(GPT),
    "lstmn-class": classifier(LSTMN),
    "lstm-class": classifier(RECURRENT),
    "tcn-class": classifier(TCN),
    "structured-class": classifier(STRUCTURED, pool="mean"),
    "kim-class": classifier(KIM),
    "bilstm-crf": HeadedConfig(BILSTM, CrfHeadConfig(VOCAB)),
    "bert-span": HeadedConfig(BERT, SpanHeadConfig()),
    "bert-vector": HeadedConfig(BERT, VectorHeadConfig()),
    "bert-choice": HeadedConfig(BERT, ChoiceHeadConfig().for_body(BERT)),
}
ACROSS = [score for score in SCORES if score not in NOT_FOR_A_SOURCE]
NARROW = [window for window in WINDOWS if window != "none"]
ATTENTIVE = [decoder for decoder in DECODERS if decoder not in ("once", "every")]
VARIANTS: dict[str, ModelConfig] = {
    **{f"{decoder}-{cell}": replace(SEQ, decoder=decoder, cell=cell) for decoder, cell in product(DECODERS, KERNELS)},
    **{
        f"{decoder}-{score}": replace(SEQ, decoder=decoder, score=score, cell=cell)
        for (decoder, score), cell in zip(product(ATTENTIVE, ACROSS), cycle(("gru", "lstm", "rnn", "gru")))
    },
    **{
        f"{decoder}-{window}-{score}": replace(SEQ, decoder=decoder, window=window, score=score)
        for (decoder, window), score in zip(product(ATTENTIVE, NARROW), cycle(("additive", "location", "general")))
    },
    **{f"{decoder}-coverage": replace(SEQ, decoder=decoder, coverage=True) for decoder in ATTENTIVE},
    **{f"caption-{score}": replace(FEATURES, score=score) for score in ACROSS if score != "additive"},
    **{f"caption-{decoder}": replace(PIXELS, decoder=decoder, cell="gru") for decoder in DECODERS if decoder != "once"},
    "caption-luong-hard": replace(FEATURES, attention="hard", decoder="luong", positions="none", layers=2),
    **{f"recurrent-{cell}": replace(RECURRENT, cell=cell, layers=1) for cell in KERNELS},
    **{f"gnmt-{score}": replace(GNMT, score=score, layers=2) for score in ("dot", "location")},
    "gnmt-deep": replace(GNMT, layers=4),
    "convs2s-kernels": replace(CONVS2S, kernels=(5, 3, 1), channels=(8,)),
    "tcn-tied": replace(TCN, kernel=3, layers=1, embed=8, tied=True),
    "recurrent-tied": replace(RECURRENT, cell="gru", embed=8, tied=True),
    **{f"chrono-{cell}": replace(RECURRENT, cell=cell, chrono=20) for cell in ("lstm", "gru")},
    **{f"awd-{cell}": replace(RECURRENT, cell=cell, **AWD) for cell in KERNELS},
    "awd-both": both(replace(RECURRENT, **AWD)),
    "awd-class": classifier(replace(RECURRENT, **AWD), pool="concat", hidden="relu", inner=5),
    "gpt-vector-last": HeadedConfig(GPT, VectorHeadConfig(pool="last", normalise=False)),
    "lstm-vector-max": HeadedConfig(RECURRENT, VectorHeadConfig(pool="max")),
    "bert-class-concat": classifier(BERT, pool="concat"),
    **{f"lstmn-{score}": replace(LSTMN, score=score) for score in SCORES if score not in NOT_FOR_SELF_ATTENTION},
    "masked-rnn": replace(MASKED_LSTM, cell="rnn", layers=1),
    "context2vec-gru": replace(CONTEXT2VEC, cell="gru", layers=1, power=0.0),
    **{f"structured-{cell}": replace(STRUCTURED, cell=cell, layers=2) for cell in KERNELS},
    "kim-static": replace(KIM, vectors="static", max_norm=0.0),
    "bilstm-deep": replace(BILSTM, layers=2, filters=0),
    "bilstm-extractor": replace(BILSTM, extractor=RECURRENT, mixed=2, extracted=8, before=(1,), tune=True),
    "bilstm-class": classifier(BILSTM),
    "bilstm-span": HeadedConfig(BILSTM, SpanHeadConfig()),
    "gpt-choice": HeadedConfig(GPT, ChoiceHeadConfig().for_body(GPT)),
    "kim-multichannel": replace(KIM, vectors="multichannel", kernels=(1, 4)),
    **{f"gpt-{score}": replace(GPT, score=score) for score in ACROSS if score not in ("location", "scaled_dot")},
    "gpt-post": replace(GPT, norm_place="post", activation="relu"),
    "gpt-sinusoidal": replace(GPT, positions="sinusoidal", scaled=True, tied=False),
    "gpt-t5": replace(GPT, **T5),
    "gpt-relative": replace(GPT, positions="relative"),
    "gpt-banded": replace(GPT, windows=(0, 2)),
    "gpt-windowed": replace(GPT, windows=(3,)),
    "gpt-nowhere": replace(GPT, positions="none"),
    "gpt-adaptive": replace(GPT, **CLUSTERED, tied=False, positions="sinusoidal", scaled=True),
    "xl-endless": replace(GPT, **XL | {"memory": 0}, clamp=3, shared_biases=True, softmax="adaptive", embed=6),
    "xl-class": classifier(replace(GPT, **XL, **CLUSTERED), pool="mean"),
    "gpt-class-mean": classifier(replace(GPT, tied=False), pool="mean", hidden="relu"),
    "bert-class-last": classifier(replace(BERT, segments=0), pool="last", bias=False),
    "bert-class-mean": classifier(BERT, pool="mean", hidden="none"),
    "bert-albert": replace(BERT, layers=4, groups=2, embed=5, segments=0),
    "bert-groups": replace(BERT, layers=4, groups=2, group_blocks=2),
    "bert-relative": replace(BERT, positions="relative", tied=False, first_position=2),
    "bert-window": replace(BERT, windows=(1,), norm_place="pre"),
    "elmo-plain": replace(ELMO, skip=False, cell_clip=0.0, state_clip=0.0, highways=0, activation="tanh"),
    "elmo-wide": replace(ELMO, width=10, layers=3),
    "elmo-clipped": replace(ELMO, cell_clip=0.1, state_clip=0.02),
    "elmo-class": classifier(both(ELMO)),
    "lstm-adaptive": replace(RECURRENT, **ADAPTIVE),
    "gru-adaptive-tied": replace(RECURRENT, cell="gru", embed=8, tied=True, **ADAPTIVE),
    "tcn-adaptive": replace(TCN, embed=8, tied=True, **ADAPTIVE | {"divide": 1}),
    "rnn-both-adaptive": both(replace(RECURRENT, cell="rnn", **ADAPTIVE)),
    "gpt-both": both(GPT),
    "gru-both-tied": both(replace(RECURRENT, cell="gru", embed=8, tied=True)),
    "tcn-both": both(TCN),
    "lstmn-both": both(LSTMN),
    "lstm-both-class": classifier(both(RECURRENT)),
    "transformer-post": replace(TRANSFORMER, norm_place="post", decoder_layers=1, decoder_heads=4, readout_bias=True),
    "transformer-learned": replace(TRANSFORMER, positions="learned", shared="none"),
    "transformer-relative": replace(TRANSFORMER, positions="relative"),
    "transformer-additive": replace(TRANSFORMER, score="additive", head_width=3),
    "transformer-cosine": replace(TRANSFORMER, score="cosine"),
}
CASES = FAMILIES | VARIANTS

PAIRS: list[Ids] = [
    ([4, 5, 6, 7, 8], [9, 8, 7]),
    ([12, 4], [5, 10, 11, 12, 4, 6]),
    ([6, 6, 9, 4, 10, 11, 7], [4]),
]


def over(cases: Mapping[str, ModelConfig], fast: Collection[str] | None = None) -> pytest.MarkDecorator:
    """A test of each case. If ``fast`` is given, the test of a case that is not in it is slow."""
    params = []
    for name, config in cases.items():
        slow = fast is not None and name not in fast
        params.append(pytest.param(config, id=name, marks=[pytest.mark.slow] if slow else []))
    return pytest.mark.parametrize("config", params)


CAUSAL = {name: config for name, config in CASES.items() if config.causal}
READERS = {name: config for name, config in CASES.items() if attentions(config.build())}
PROMPTED = {  # whose prompts may be padded
    name: config
    for name, config in CAUSAL.items()
    if isinstance(config, GptConfig | TransformerConfig | RecurrentLmConfig | TcnConfig | ElmoConfig)
    and not getattr(config, "memory", 0)
}
SOURCE_READERS = {name: config for name, config in READERS.items() if config.reads_source}


def built(config: ModelConfig) -> Any:
    model: Any = config.build().double().eval()
    if config.learns_by == "counts":
        model.add(*(torch.randint(VOCAB, (2, 80)) for _ in range(2)))
    return model


def batch_for(model: Model, pairs: list[Ids] = PAIRS) -> Batch:
    """The batch of the model's task: of the pairs, or of their targets alone, or of sources with a label each."""
    task, texts = task_of(model.config), [target for _, target in pairs]
    if shape := model.config.source_shape:
        return image_batch(shape, pairs)
    columns = {
        "translate": pair_columns(pairs),
        "language": text_columns(texts),
        "two-way language": text_columns(texts),
        "masked": whole_columns(texts),
        "replaced": whole_columns(texts),
        "context": text_columns(texts),
        "words": whole_columns(texts),
        "classify": labelled_columns([(source, target[0]) for source, target in pairs]),
        "tag": tagged_columns([(source, source[::-1]) for source, _ in pairs]),
        "embed": related_columns(pairs),
        "choice": joined_columns([(source, 0) for source, _ in pairs]),
        "answer": answer_columns([(source, (1, len(source) - 1)) for source, _ in pairs]),
    }
    return collate(rows_of(columns[task.name]), task)


def image_batch(shape: tuple[int, ...], pairs: list[Ids]) -> Batch:
    """The targets of the pairs as captions of random images, which follow from the sources."""
    said = collate(rows_of(pair_columns(pairs)), TASKS["translate"])
    drawn = [torch.rand(*shape, generator=torch.Generator().manual_seed(sum(source))) for source, _ in pairs]
    pixels, real = torch.stack(drawn) * 256, torch.ones(len(pairs), shape[0], dtype=torch.bool)
    fields, counts = {**said.fields, "source": pixels}, {**said.counts, "source": real.numel()}
    return replace(said, fields=fields, real={**said.real, "source": real}, counts=counts)


def with_tokens(batch: Batch, tokens: Tensor) -> Batch:
    return replace(batch, fields={**batch.fields, "tokens": tokens})


def begun(model: Any, batch: Batch, capacity: int | None = None) -> Any:
    """The state before the first token."""
    source, real = batch.fields.get("source"), batch.real.get("source")
    return model.start(source, real, rows=len(batch["tokens"]), capacity=capacity or LONGEST)


def loss_module(model: Model, batch: Batch) -> Tensor:
    """What of the logits is judged: those of real places, or of each text. (N, V)"""
    logits = model(batch)
    return logits if model.config.one_per_text else logits[batch.real["tokens"]]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0.0)


def differ(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() > 1e-9)


def test_every_model_is_here() -> None:
    assert {type(config) for config in FAMILIES.values()} == {*MODELS.values(), HeadedConfig, TwoDirectionsConfig}


# Reading and stepping


@over(CAUSAL)
def test_a_text_may_be_read_whole_or_in_pieces(config: ModelConfig) -> None:
    model = built(config)
    batch = batch_for(model)
    whole = model(batch)
    assert whole.shape == (*batch["tokens"].shape, VOCAB)
    with torch.no_grad():
        for pieces in ([2, 3, 2], [6, 1]):
            state, logits = begun(model, batch), []
            for tokens in batch["tokens"].split(pieces, dim=1):
                features, state = model.advance(tokens, state)
                logits.append(model.readout(features))
            close(torch.cat(logits, dim=1), whole.detach())


# Other rows and padding


def padded(config: ModelConfig, batch: Batch, left: int, right: int) -> Batch:
    """More padding, full of tokens that nobody may read: around what is read both ways, behind what is said."""
    sides = {"tokens": (0, right) if config.causal else (left, right), "source": (left, right)}
    texts = [name for name in batch.real if batch[name].dim() == 2]  # an image has no padding
    longer = {name: F.pad(batch[name], sides[name], value=5) for name in texts}
    places = [name for name in ("segments", "allowed") if name in batch.fields]
    longer |= {name: F.pad(batch[name], sides["tokens"]) for name in places}
    real = {**batch.real, **{name: F.pad(batch.real[name], sides[name]) for name in texts}}
    return replace(batch, fields={**batch.fields, **longer}, real=real, counts={})


@over(PROMPTED)
def test_padding_of_a_prompt_changes_nothing_that_follows(config: ModelConfig) -> None:
    """Prompts of several lengths, padded further, and steps after them: as each alone, without padding."""
    model = built(config)
    batch = batch_for(model)
    said = torch.tensor([[4, 5, 6], [7, 8, 9]])  # by step
    with torch.no_grad():
        expected = []
        for row, pair in enumerate(PAIRS):
            alone = batch_for(model, [pair])
            whole = torch.cat([batch["tokens"][row][batch.real["tokens"][row]], said[:, row]])[None]
            features, _ = model.advance(whole, begun(model, alone, 2 * LONGEST))
            expected.append(model.readout(features)[0, -2:])
        for sides in ((0, 3), (3, 0), (2, 1)):
            tokens, real = F.pad(batch["tokens"], sides, value=5), F.pad(batch.real["tokens"], sides)
            _, state = model.advance(tokens, begun(model, batch, 2 * LONGEST), real)
            found = []
            for one in said:
                logits, state = model.step(one, state)
                found.append(logits)
            close(torch.stack(found, dim=1), torch.stack(expected))


def with_filler(batch: Batch) -> Batch:
    """The batch with its last row emptied."""
    kept = {name: (torch.arange(len(real)) < len(real) - 1)[:, None] for name, real in batch.real.items()}
    return replace(batch, real={name: real & kept[name] for name, real in batch.real.items()}, counts={})


# What `regard doctor` checks. These two hold together: the checks call `Inputs.logits`, and training calls the model.


@over(CASES, fast=FAMILIES)
def test_the_doctor_finds_no_fault(config: ModelConfig) -> None:
    """No leak of later tokens, padding or other rows; cached, accumulated and saved models are equal; finite rows."""
    model = built(config)
    findings = doctor(model, model_calls(model.config))
    assert [found for found in findings if found.status == FAILED] == []
    assert all(found.error <= 1e-9 for found in findings if found.error is not None and found.check != "beam")
    skipped = {"tokenizer", "resumed"} | (set() if config.causal else {"future", "cached", "beam"})
    skipped |= {"accumulated"} if config.learns_by == "counts" else set()
    assert {found.check for found in findings if found.status == DOES_NOT_APPLY} == skipped


@over(CASES, fast=FAMILIES)
def test_a_batch_has_the_logits_of_its_inputs(config: ModelConfig) -> None:
    """With padding on both sides, and with a row that is empty, whose gradients are finite."""
    model = built(config)
    batch = batch_for(model)
    for each in (batch, padded(config, batch, 2, 1), with_filler(batch)):
        tokens, real = each["tokens"], each.real["tokens"]
        logits = Inputs(tokens, real, each.fields.get("source"), each.real.get("source")).logits(model)
        close(loss_module(model, each), logits if config.one_per_text else logits[real])
    emptied = model(with_filler(batch))
    if config.learns_by == "gradients":
        emptied.sum().backward()
    assert emptied.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@over({name: config for name, config in CASES.items() if not config.source_shape}, fast=FAMILIES)
def test_the_layers_end_with_the_features(config: ModelConfig) -> None:
    """The states of every layer, the embeddings first; padding changes no layer."""
    model = built(config)
    each = padded(config, batch_for(model), 2, 1)
    read = "source" if config.reads_source else "tokens"
    ids, real = each[read], each.real[read]
    layers = model.layers(ids, real)
    assert len(layers) >= 2 or config.learns_by == "counts" or "words" in config.predicts
    assert all(layer.shape[:2] == ids.shape for layer in layers)
    last = model.encode(ids, real) if config.reads_source else model.features(ids, real)
    close(layers[-1], last)
    for row in range(len(ids)):
        alone = model.layers(ids[row : row + 1, real[row]], None)
        for whole, one in zip(layers, alone, strict=True):
            close(whole[row, real[row]], one[0])


# Models that read numbers instead of tokens. Under a head they promise the same.

NUMBERS = 3
HEADED = {"class": ClassHeadConfig(4), "number": NumberHeadConfig(), "tag": TagHeadConfig(4), "keys": KeysHeadConfig(4)}
BODIES = {
    "lstm": replace(RECURRENT, vocab=0, numbers=NUMBERS),
    "tcn": replace(TCN, vocab=0, numbers=NUMBERS),
    "gpt": replace(GPT, vocab=0, numbers=NUMBERS, positions="sinusoidal"),
    "gpt-relative": replace(GPT, vocab=0, numbers=NUMBERS, positions="relative"),
}
OF_NUMBERS: dict[str, ModelConfig] = {
    f"{name}-{predicted}": HeadedConfig(body, head.for_body(body))
    for (name, body), (predicted, head) in product(BODIES.items(), HEADED.items())
}
FAST = ("lstm-number", "tcn-keys", "gpt-class", "gpt-relative-tag")


@over(OF_NUMBERS, fast=FAST)
def test_the_doctor_finds_no_fault_in_a_model_of_numbers(config: ModelConfig) -> None:
    findings = doctor(built(config), model_calls(config))
    assert [found for found in findings if found.status == FAILED] == []
    assert all(found.error <= 1e-9 for found in findings if found.error is not None)
    skipped = {found.check for found in findings if found.status == DOES_NOT_APPLY}
    assert skipped == {"tokenizer", "resumed", "future", "cached", "beam"}


@over(OF_NUMBERS, fast=FAST)
def test_a_batch_of_numbers_has_the_logits_of_its_inputs(config: ModelConfig) -> None:
    """With padding before and after each sequence, whose numbers are not read; and no output depends on later steps."""
    model, draw = built(config), torch.Generator().manual_seed(1)
    values = torch.randn(3, 6, NUMBERS, generator=draw, dtype=torch.float64)
    real = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
    outputs = model(Batch({"tokens": values}, {"tokens": real}))
    wider = F.pad(values.masked_fill(~real[..., None], 7.0), (0, 0, 2, 1), value=-7.0), F.pad(real, (2, 1))
    padded_outputs = Inputs(*wider).logits(model)
    if config.one_per_text:
        close(padded_outputs, outputs)
        close(model(Batch({"tokens": values[2:, :1]}, {"tokens": real[2:, :1]})), outputs[2:])
    else:
        close(padded_outputs[wider[1]], outputs[real])
        close(
            model(Batch({"tokens": values[:, :3]}, {"tokens": real[:, :3]}))[real[:, :3]], outputs[:, :3][real[:, :3]]
        )


@over(
    {
        name: config
        for name, config in CASES.items()
        if not config.causal and not config.one_per_text and config.learns_by == "gradients"
    }
)
def test_a_model_that_reads_both_ways_sees_the_future(config: ModelConfig) -> None:
    findings = doctor(built(config), replace(model_calls(config), causal=True))
    assert [found.check for found in findings if found.status == FAILED] == ["future"]


def searched(model: Any, pairs: list[Ids], prompts: Tensor) -> Hypotheses:
    return beam(model, begun(model, batch_for(model, pairs)), prompts, size=3, limit=6, stop=EOS, penalty=1.0)


PROMPTS = torch.tensor([BOS, 5, 9])  # what a model without a source differs by


def opinionated(config: ModelConfig) -> Any:
    """A model with clear preferences: no two hypotheses are as good as each other."""
    model = built(config)
    if config.learns_by == "counts":
        return model
    with torch.no_grad():
        product = model.product(torch.zeros(1, config.width).double())
        for part in (product,) if isinstance(product, Product) else (product.frequent, product.others, *product.rare):
            if part is not None:
                part.weight.mul_(8)  # of tied ones, the embedding too
    return model


@over(CAUSAL, fast=FAMILIES)
def test_a_beam_over_many_finds_what_it_finds_for_each_alone(config: ModelConfig) -> None:
    model = opinionated(config)
    together = searched(model, PAIRS, PROMPTS)
    for row, pair in enumerate(PAIRS):
        alone = searched(model, [pair], PROMPTS[row : row + 1])
        close(together.lengths[row], alone.lengths[0])
        torch.testing.assert_close(together.scores[row], alone.scores[0])
        for one, other, length in zip(together.tokens[row], alone.tokens[0], alone.lengths[0]):
            assert one[:length].tolist() == other[:length].tolist()


# Looking


def sees_something(config: ModelConfig, name: str, batch: Batch, queries: int) -> Tensor:
    """Which queries of a module's rows have anything to see, (B, Tq)."""
    at = torch.arange(queries)
    everywhere = torch.ones(len(batch["tokens"]), queries, dtype=torch.bool)
    match config:
        case LstmnConfig() | HeadedConfig(body=LstmnConfig()) | TwoDirectionsConfig(body=LstmnConfig()):
            return everywhere & (at > 0)  # the first token has no past
        case HeadedConfig(body=GptConfig(positions="xl")):
            return everywhere
        case Seq2SeqConfig(window="local-m"):
            real = batch.real["source"]
            near = (at[:, None] - torch.arange(real.shape[1])).abs() <= config.radius  # (Tq, Tk)
            return (near & real[:, None]).any(-1)
        case GptConfig():
            return everywhere
        case TransformerConfig() if name.startswith("decoder") and "cross" not in name:
            return everywhere
        case BertConfig(windows=(radius,)):
            return ((at[:, None] - at).abs() <= radius).logical_and(batch.real["tokens"][:, None]).any(-1)
        case _:
            read = batch.real.get("source", batch.real["tokens"])
            return everywhere & read.any(1, keepdim=True)


@over(READERS)
def test_recorded_rows_sum_to_one_or_to_nothing(config: ModelConfig) -> None:
    model = built(config)
    batch = with_filler(batch_for(model))
    with record(model) as tape:
        model(batch)
    assert {name.partition("[")[0] for name in tape} == set(attentions(model))
    for name in tape:
        rows = tape[name].sum(-1)  # (B, [H,] Tq)
        something = sees_something(config, name, batch, rows.shape[-1])
        something = something[:, None].expand_as(rows) if rows.dim() == 3 else something
        assert (tape[name] >= 0).all()
        assert (rows[~something] == 0).all()
        if getattr(config, "window", "none") == "local-p":
            assert (rows <= 1 + 1e-9).all()
            assert (rows[something] > 0).any()
        else:
            close(rows[something], torch.ones_like(rows[something]))


@contextmanager
def watched(model: nn.Module) -> Iterator[dict[str, list[tuple[Memory, Tensor]]]]:
    """Every read by the name it has on a tape: the memory and what came of it."""
    reads: dict[str, list[tuple[Memory, Tensor]]] = {}
    counts = dict.fromkeys(attentions(model), 0)

    def saw(name: str, turns: int, read: tuple[Memory, Tensor]) -> None:
        reads.setdefault(name if turns == 1 else f"{name}[{counts[name] % turns}]", []).append(read)
        counts[name] += 1

    hooks = [
        module.register_forward_hook(lambda it, args, output, name=name: saw(name, it.shared_by, (args[1], output)))
        for name, module in attentions(model).items()
    ]
    yield reads
    for hook in hooks:
        hook.remove()


@over(READERS)
def test_recorded_weights_are_those_of_the_read(config: ModelConfig) -> None:
    """Weights @ values is what was read. Values written later have no weight, so the last memory serves for all."""
    model = built(config)
    with record(model) as tape, watched(model) as reads:
        model(batch_for(model))
    for name, found in reads.items():
        contexts = torch.cat([output for _, output in found], dim=-2)
        close(tape[name] @ found[-1][0].values, contexts)


@over(READERS, fast=FAMILIES)
def test_an_edit_changes_what_is_read_as_the_definition_says(config: ModelConfig) -> None:
    """An edit of nothing changes nothing; edited weights are recorded, and their product with the values is read."""
    model = built(config)
    batch = batch_for(model)
    logits = model(batch)
    with edit(model, {"*": lambda weights: weights}):
        close(model(batch), logits)
    with edit(model, {"*": lambda weights: weights.square() / 2}), record(model) as tape, watched(model) as reads:
        changed = model(batch)
    assert differ(changed, logits)
    for name, found in reads.items():
        contexts = torch.cat([output for _, output in found], dim=-2)
        close(tape[name] @ found[-1][0].values, contexts)
    close(model(batch), logits)


@over(READERS, fast=FAMILIES)
def test_looking_does_not_change_the_answer_by_a_bit(config: ModelConfig) -> None:
    model = config.build().train()  # in float32 and with dropout, as it is trained

    def answer() -> tuple[Tensor, list[Tensor | None]]:
        torch.manual_seed(2)
        logits = model(batch_for(model))
        model.zero_grad()
        logits.square().sum().backward()
        return logits, [p.grad for p in model.parameters()]

    logits, gradients = answer()
    with record(model) as tape:
        seen, seen_gradients = answer()
    assert len(tape) > 0
    assert torch.equal(seen, logits)
    for one, other in zip(seen_gradients, gradients):
        assert (one is None and other is None) or torch.equal(one, other)


# Work


@over(SOURCE_READERS, fast=FAMILIES)
def test_keys_are_projected_once_for_a_source(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(config)
    blocks = [block for block in model.modules() if isinstance(block, Block) and block.cross is not None]
    if isinstance(config, ConvS2sConfig):  # its layers share one memory, which the first of them makes
        reads = [model.decoder.layers[0].attention]
    else:
        reads = [block.cross.read for block in blocks] or [model.decoder.attention]
    calls: list[tuple[int, ...]] = []
    for read in reads:
        keys = read.score.keys

        def counted(memory: Tensor, keys: Any = keys) -> Tensor:
            calls.append((memory.shape[0], memory.shape[-2]))
            return keys(memory)

        monkeypatch.setattr(read.score, "keys", counted, raising=False)
    batch, prompt = batch_for(model), torch.full((3,), BOS)
    said = collect(stream(model, begun(model, batch), prompt, greedy, limit=5, stop=-1))[0]  # no token is -1
    assert said.shape == (3, 5)
    keys = 7 if config.source_grid is None else math.prod(config.source_grid)
    assert calls == [(3, keys)] * len(reads)
    beam(model, begun(model, batch), prompt, size=4, limit=5, stop=EOS)
    assert calls == [(3, keys)] * len(reads) * 2


@over({name: c for name, c in SOURCE_READERS.items() if isinstance(c, Seq2SeqConfig) and c.decoder == "luong"})
def test_luong_reads_a_target_without_a_loop(config: Seq2SeqConfig) -> None:
    model = built(config)
    batch, calls = batch_for(model), []
    for module in model.decoder.rnn.onward:
        module.register_forward_hook(lambda module, args, output: calls.append(module))
    with observe({"attention": model.decoder.attention}, lambda *_: calls.append(model.decoder.attention)):
        model(batch)
    assert calls == [*model.decoder.rnn.onward, model.decoder.attention]


# Carrying a state

CARRYING = {name: config for name, config in CAUSAL.items() if config.carries}


@over(CARRYING)
def test_segments_with_a_carried_state_are_the_whole_text(config: ModelConfig) -> None:
    """Training carries hidden states, decoding may carry keys and values: both give the numbers of the text at once."""
    model = built(config)
    batch = batch_for(model)
    carried, state = model.start_segments(len(batch["tokens"])), begun(model, batch)
    for tokens in batch["tokens"].split([2, 3, 2], dim=1):
        features, carried = model.advance(tokens, carried)
        with torch.no_grad():
            stepped, state = model.advance(tokens, state)
        close(features.detach(), stepped)


@over(CARRYING)
def test_a_carried_state_differs_from_the_first_only_in_its_tensors(config: ModelConfig) -> None:
    """So that it can be saved as tensors alone."""
    model = built(config)
    first = model.start_segments(3)
    _, after = model.advance(batch_for(model)["tokens"], first)
    values = list(tensors(after))
    again = with_tensors(model.start_segments(1), iter(values))
    assert len(values) == len(list(tensors(first)))
    assert signature(again) == signature(after)
    tokens = torch.tensor([[4], [5], [6]])
    close(model.advance(tokens, again)[0], model.advance(tokens, after)[0])


# Keeping and learning


@over(
    {
        name: config
        for name, config in FAMILIES.items()
        if config.learns_by == "gradients"
        and not isinstance(config, TwoDirectionsConfig)
        # They have losses of their own: tests/objectives/test_replaced.py, test_contrastive.py, test_spans.py.
        and not {"replaced", "span", "vector"} & {*config.predicts}
    },
    fast=("bahdanau", "luong-feeding", "lstm", "structured", "gpt", "xl", "bert", "transformer", "bert-class"),
)
def test_eight_examples_are_memorised(config: ModelConfig) -> None:
    body, head = config.split()
    narrow = {"embed": 16} if hasattr(body, "embed") and not isinstance(body, Shape) else {}
    body = body.resized(32) if isinstance(body, KimConfig | ElmoConfig) else replace(body, width=32)
    body = replace(body, dropout=0.0, **narrow)
    model = (body if head is None else HeadedConfig(body, replace(head, dropout=0.0))).build()
    noise = torch.Generator().manual_seed(3)

    def draw(length: int) -> list[int]:
        return torch.randint(4, VOCAB, (length,), generator=noise).tolist()

    # A text without a source is given a first word of its own: nothing else could tell what follows.
    batch = batch_for(model, [(draw(4 + i % 4), [i + 4, *draw(1 + i % 3)]) for i in range(8)])
    if "masked" in config.predicts:  # the second token is masked, and the rest of the text says which it was
        hidden = torch.zeros_like(batch.real["tokens"])
        hidden[:, 1] = True
        targets = batch["tokens"].masked_fill(~hidden, IGNORED)
        batch = with_tokens(batch, batch["tokens"].masked_fill(hidden, BERT.mask))
    else:
        targets = batch["targets"]
    if "next" in config.predicts:
        targets[:, 0] = IGNORED
    targets = targets if config.one_per_text else targets[batch.real["tokens"]]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(900):
        loss = F.cross_entropy(loss_module(model, batch), targets)
        if loss < 0.05:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
