"""The short forms in which objects are printed."""

from pathlib import Path

import torch

from regard.data.example import Corpus, Text
from regard.data.tokenizers import train_tokenizer
from regard.models import LstmnConfig
from regard.recipes import find_recipe
from regard.recording import Tape
from regard.tasks import TASKS
from regard.training.warm_start import WarmStart
from regard.verbs import load


def test_what_is_printed_is_short(language: Path) -> None:
    tape = Tape()
    for name in ("encoder.0", "encoder.1", "decoder.0", "decoder.1"):
        tape.add(name, torch.zeros(1, 2, 9, 9))
    assert repr(tape) == (
        "<Tape of 4 modules: encoder.0 1 × (1, 2, 9, 9), encoder.1 1 × (1, 2, 9, 9), decoder.0 1 × (1, 2, 9, 9)>"
    )
    assert repr(Tape()) == "<Tape of 0 modules>"
    assert repr(find_recipe("dates")) == "<Recipe dates: Dates, Seq2SeqConfig, TeacherForcing, 450 steps>"
    tokenizer = train_tokenizer("char", ["ab"], 10)
    assert repr(tokenizer) == f"<Tokenizer char: {tokenizer.size} tokens>"
    assert repr(WarmStart(LstmnConfig(), [tokenizer], path="run")) == "<WarmStart run: LstmnConfig>"
    assert repr(Corpus([Text("a")] * 2000)) == "<Corpus: 2,000 train, 0 valid, 0 test>"
    assert repr(TASKS["classify"]) == "<Task classify: text, label>"
    assert repr(load(language, "cpu")).startswith(f"<Loaded {language}: a language model, Lstmn of ")
