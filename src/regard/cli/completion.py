"""Shell completion of recipes and settings. Its tables are literal, so that a completion does not import torch.

`tests/cli/test_completion.py` compares them with the tables of the recipes.
"""

from collections.abc import Iterator

import typer

RECIPES = {  # the kinds of its data, model and objective
    "dates": "dates seq2seq teacher",
    "sounds": "sounds seq2seq teacher",
    "translate": "pairs seq2seq teacher",
    "multi30k": "multi30k transformer teacher",
    "multi30k-de-en": "multi30k seq2seq teacher",
    "multi30k-gnmt": "multi30k gnmt teacher",
    "multi30k-convs2s": "multi30k convs2s teacher",
    "wmt14": "wmt14 transformer teacher",
    "wmt14-big": "wmt14 transformer teacher",
    "greek": "greek seq2seq teacher",
    "text": "lines lstmn teacher",
    "bigram": "lines bigram counts",
    "shakespeare": "shakespeare gpt teacher",
    "shakespeare-cpu": "shakespeare gpt teacher",
    "masked": "lines bert masked",
    "classify": "labelled structured classify",
    "adding": "adding tcn regression",
    "copy": "copy tcn recall",
    "smnist": "mnist tcn classify",
    "pmnist": "mnist tcn classify",
    "jsb": "music tcn binary",
    "nottingham": "music tcn binary",
    "clips": "clips recurrent classify",
}
KINDS = {  # of each part of a recipe
    "data": "dates sounds pairs multi30k wmt14 greek lines book shakespeare labelled adding copy clips mnist music",
    "model": "seq2seq gnmt convs2s bigram recurrent tcn lstmn structured transformer gpt bert rnn lstm gru gnmt-8 "
    "convs2s-en-de transformer-base transformer-big marian-base gpt1 gpt2 gpt2-medium gpt2-large gpt2-xl gpt3-small "
    "gpt3 transformer-xl bert-base bert-large distilbert-base roberta-base roberta-large xlm-roberta-base albert-base "
    "albert-xxlarge electra-small electra-base t5-small t5-base t5-large t5-v1.1-small t5-v1.1-base",
    "objective": "teacher counts professor guided masked classify regression binary recall",
    "head": "class number tag keys",
}
SETTINGS = {  # of the plan, and of each kind of the other parts
    "plan": "steps epochs minutes batch_tokens accumulate rate schedule warmup optimizer betas epsilon decay "
    "layer_decay freeze unfreeze clip seed device precision capture compile threads log evaluate samples patience "
    "keep select",
    "data=dates": "languages first_year last_year train valid test seed source_tokens target_tokens",
    "data=sounds": "stress source_tokens target_tokens",
    "data=pairs": "train valid test source target source_tokens target_tokens vocab joint",
    "data=multi30k": "source target source_tokens target_tokens vocab joint",
    "data=wmt14": "source target source_tokens target_tokens vocab joint",
    "data=greek": "source_tokens target_tokens vocab",
    "data=lines": "train valid test text tokens vocab",
    "data=book": "train valid test tokens vocab window order valid_tokens sample_mb",
    "data=shakespeare": "train valid test tokens vocab window order valid_tokens sample_mb",
    "data=labelled": "train valid test text label tokens vocab",
    "data=adding": "train valid test length seed",
    "data=copy": "train valid test delay seed",
    "data=clips": "train valid test size frames noise seed",
    "data=mnist": "permuted seed train",
    "data=music": "pieces",
    "model=seq2seq": "source_vocab target_vocab width embed layers cell decoder score window radius capacity "
    "dropout coverage embedding",
    "model=gnmt": "source_vocab target_vocab width embed layers score capacity dropout embedding",
    "model=convs2s": "source_vocab target_vocab width layers channels kernels context dropout embedding",
    "model=bigram": "vocab smoothing k weight pairs",
    "model=recurrent": "vocab cell width embed layers tied dropout embedding numbers",
    "model=tcn": "vocab width embed layers kernel tied dropout embedding_dropout embedding numbers",
    "model=lstmn": "vocab width embed score dropout context embedding",
    "model=structured": "vocab labels width embed layers cell hops attention dropout embedding",
    "model=transformer": "width heads layers inner head_width activation gated norm norm_place last_norm epsilon "
    "attention_bias feed_bias residual score positions furthest buckets windows groups group_blocks context dropout "
    "attention_dropout feed_dropout embedding source_vocab target_vocab decoder_layers decoder_heads decoder_inner "
    "shared scaled readout_bias readout_scale",
    "model=gpt": "width heads layers inner head_width activation gated norm norm_place last_norm epsilon "
    "attention_bias feed_bias residual score positions furthest buckets windows groups group_blocks context dropout "
    "attention_dropout feed_dropout embedding vocab tied scaled memory memory_zeros clamp shared_biases softmax "
    "cutoffs divide embed projections numbers",
    "model=bert": "width heads layers inner head_width activation gated norm norm_place last_norm epsilon "
    "attention_bias feed_bias residual score positions furthest buckets windows groups group_blocks context dropout "
    "attention_dropout feed_dropout embedding vocab embed segments first_position outputs tied head_activation mask "
    "specials",
    "objective=teacher": "ratio schedule floor over smoothing",
    "objective=counts": "",
    "objective=professor": "weight width smoothing",
    "objective=guided": "alignment align_layer align_heads smoothing",
    "objective=masked": "part smoothing kept random",
    "objective=classify": "penalty smoothing",
    "objective=regression": "",
    "objective=binary": "",
    "objective=recall": "",
    "head=class": "labels pool hidden bias dropout",
    "head=number": "pool dropout",
    "head=tag": "labels dropout",
    "head=keys": "keys dropout",
}
CELLS = ("rnn", "lstm", "gru")  # names of model=recurrent


def recipe_names(incomplete: str) -> list[str]:
    """The recipes whose names start like this."""
    return [name for name in RECIPES if name.startswith(incomplete)]


def setting_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The settings `name=` of the recipe on the command line, or the kinds `model=KIND` of a part, with this start.

    Bash splits words at "=": there `model=g` arrives as three words.
    """
    given = list(ctx.params.get("settings") or [])
    if given[-1:] == ["="]:
        return [kind for kind in _kinds_of(given[-2]) if kind.startswith(incomplete)]
    name, equals, _ = incomplete.partition("=")
    if equals:
        return [word for kind in _kinds_of(name) if (word := f"{name}={kind}").startswith(incomplete)]
    recipe = ctx.params.get("recipe") or ctx.params.get("name") or ctx.params.get("what") or ""
    stated = dict(word.split("=", 1) for word in " ".join(given).replace(" = ", "=").split() if "=" in word)
    return [name for name in _settings(recipe, stated) if name.startswith(incomplete)]


def plan_settings() -> list[str]:
    """The names of the settings of a plan."""
    return SETTINGS["plan"].split()


def _kinds_of(part: str) -> list[str]:
    return KINDS.get(part, "").split()


def _settings(recipe: str, stated: dict[str, str]) -> Iterator[str]:
    yield from (f"{name}=" for name in (*KINDS, "metrics", "from"))
    yield from (f"plan.{name}=" for name in plan_settings())
    own = dict(zip(("data", "model", "objective"), RECIPES.get(recipe, "").split())) | {"head": "class"} | stated
    for part in KINDS:
        kind = "recurrent" if own.get(part) in CELLS else own.get(part, "")
        # A published size has the settings of the family that its name starts with, if that is the family's name.
        kind = kind if f"{part}={kind}" in SETTINGS else next((k for k in _kinds_of(part) if kind.startswith(k)), "")
        yield from (f"{part}.{name}=" for name in SETTINGS.get(f"{part}={kind}", "").split())
