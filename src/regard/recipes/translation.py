"""Recipes that translate: a person's own pairs, and two public corpora."""

from regard.data.sources import GreekEnglish, Multi30k, Pairs
from regard.models import Seq2SeqConfig
from regard.objectives import TeacherForcing
from regard.recipes.plan import Plan
from regard.recipes.recipe import Recipe


def translate() -> Recipe:
    """Your own pairs: `data.train=pairs.tsv`, or two parallel files `data.train=src.txt,tgt.txt`."""
    return Recipe(
        name="translate",
        title="pairs of your own",
        data=Pairs(),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.2),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=10_000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, patience=5),
        metrics=("bleu", "exact"),
    )


def multi30k_de_en() -> Recipe:
    """German → English captions of pictures (Multi30k), with the model of Bahdanau et al. 2015."""
    return Recipe(
        name="multi30k-de-en",
        title="German to English captions (Multi30k)",
        data=Multi30k(source="de", target="en", vocab=4000),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.5),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=6000, batch_tokens=4096, rate=1e-3, warmup=500, evaluate=500, samples=1014, select="bleu"),
        metrics=("bleu",),
    )


def greek() -> Recipe:
    """Greek → English New Testament, its attention held against an alignment made by hand."""
    return Recipe(
        name="greek",
        title="Greek to English New Testament, aligned by hand",
        data=GreekEnglish(),
        model=Seq2SeqConfig(width=512, embed=256, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(steps=4000, batch_tokens=8192, rate=1e-3, warmup=300, evaluate=400, select="aer"),
        metrics=("bleu", "aer", "alignment"),
    )
