"""Make the Transformer-XL fixtures: tiny random models, and the outputs of the reference for them.

`transformers` 5 no longer has Transformer-XL, so the reference is a 4.57 in an environment of its own:

    python tests/pretrained/make_transfo_xl.py --make-env /tmp/xl-env

which is, by hand,

    python -m venv /tmp/xl-env
    /tmp/xl-env/bin/pip install -c PINS "transformers==4.57.*" torch numpy safetensors
    /tmp/xl-env/bin/python tests/pretrained/make_transfo_xl.py

where PINS holds the versions of torch, numpy and safetensors from constraints.txt. Every number is drawn here from a
seed. A fixture is a directory with `config.json` and `model.safetensors`, as the reference saves them, and
`outputs.safetensors`: two segments of tokens, the log-probabilities and last states of the first, the memories it
leaves, the same of the second read with those memories, and both segments again token by token.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PINNED = ("torch", "numpy", "safetensors")
COMMON = {
    "vocab_size": 24,
    "cutoffs": [],
    "d_model": 8,
    "d_embed": 8,
    "n_head": 2,
    "d_head": 4,
    "d_inner": 12,
    "div_val": 1,
    "n_layer": 2,
    "mem_len": 5,
    "clamp_len": -1,
    "same_length": False,
}
CUTOFFS = [6, 14]
# The settings of each fixture. The first segment has 7 tokens, so a memory of 5 is always outgrown.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"n_layer": 1, "mem_len": 0},
    "memory": {},
    "roomy": {"mem_len": 9, "n_head": 3},  # a memory longer than the segment; heads wider than the model
    "window": {"same_length": True, "cutoffs": CUTOFFS},
    "published": {"same_length": True, "clamp_len": 3, "cutoffs": CUTOFFS, "div_val": 2},  # as the published model
    "projected": {"cutoffs": CUTOFFS, "d_embed": 6, "clamp_len": 4},
    "narrow": {"d_embed": 6},
    "tied": {"untie_r": False, "n_layer": 3},
    "prenorm": {"pre_lnorm": True, "layer_norm_epsilon": 1e-3},
    "untied": {"tie_word_embeddings": False, "proj_share_all_but_first": False, "cutoffs": CUTOFFS, "div_val": 2},
}


def make_env(folder: Path) -> Path:
    """An environment with the reference; the interpreter in it."""
    lines = (HERE.parents[1] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    venv.create(folder, with_pip=True)
    pins = folder / "pins.txt"
    pins.write_text("\n".join(line for line in lines if line.split("==")[0] in PINNED) + "\n", encoding="utf-8")
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "-c", pins, "transformers==4.57.*", *PINNED], check=True)
    return python


def patch_type_as() -> None:
    """Make `Tensor.type_as` accept `dtype=`, which transformers 4.57 passes and torch does not support."""
    import torch

    original = torch.Tensor.type_as

    def type_as(self: Any, other: Any = None, *, dtype: Any = None) -> Any:
        return self.to(dtype) if other is None else original(self, other)

    torch.Tensor.type_as = type_as


def build(settings: dict[str, Any], seed: int) -> Any:
    """A model with random weights, large enough that an error anywhere changes the outputs."""
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel

    torch.manual_seed(seed)
    model = TransfoXLLMHeadModel(TransfoXLConfig(**{**COMMON, **settings})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = 1.0 if re.search(r"layer_norm\.weight$", name) else 0.0
            parameter.copy_(gain + 0.4 * torch.randn_like(parameter))
    return model


def outputs(model: Any, seed: int) -> dict[str, Any]:
    """The outputs of the reference for two segments, at once and token by token."""
    import torch

    torch.manual_seed(seed)
    first, second = (torch.randint(0, model.config.vocab_size, (2, length)) for length in (7, 4))
    one = model(first, output_hidden_states=True)
    found = {"tokens": first, "logits": one.prediction_scores, "states": one.hidden_states[-1]}
    if one.mems is None:
        return found
    two = model(second, mems=one.mems, output_hidden_states=True)
    found |= {"second.tokens": second, "second.logits": two.prediction_scores, "second.states": two.hidden_states[-1]}
    for layer, (left, later) in enumerate(zip(one.mems, two.mems, strict=True)):
        found |= {
            f"mems.{layer}": left,
            f"second.mems.{layer}": later,
        }  # (mem_len, B, d_model), as the reference has it
    logits, mems = [], None
    for token in torch.cat([first, second], dim=1).split(1, dim=1):
        step = model(token, mems=mems)
        mems = step.mems
        logits.append(step.prediction_scores)
    return found | {"steps.logits": torch.cat(logits, dim=1)}


def make(out: Path) -> None:
    """Write every fixture, and check that the reference reads it back."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers import TransfoXLLMHeadModel

    transformers.logging.set_verbosity_error()
    logging.captureWarnings(True)
    patch_type_as()
    for seed, (name, settings) in enumerate(VARIANTS.items()):
        model, folder = build(settings, seed), out / name
        shutil.rmtree(folder, ignore_errors=True)
        # Where all layers share two biases, the reference finds them again only if each layer has its copy in the file.
        state = {key: value.clone() if "_bias" in key else value for key, value in model.state_dict().items()}
        model.save_pretrained(folder, state_dict=state, safe_serialization=True)
        (folder / "generation_config.json").unlink(missing_ok=True)
        with torch.no_grad():
            found = outputs(model, seed)
            save_file({key: value.contiguous() for key, value in found.items()}, folder / "outputs.safetensors")
            again = outputs(TransfoXLLMHeadModel.from_pretrained(folder).eval(), seed)
        held = load_file(folder / "outputs.safetensors")
        for key, value in held.items():
            torch.testing.assert_close(
                again[key], value, atol=1e-6, rtol=1e-6, msg=f"{name}: {key} changes when opened"
            )
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name:<10} {size / 1024:5.1f} KiB  {len(load_file(folder / 'model.safetensors'))} tensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-env", type=Path, metavar="DIR", help="make the environment there, and use it")
    parser.add_argument("--out", type=Path, default=HERE / "fixtures" / "transfo_xl")
    options = parser.parse_args()
    if options.make_env is None:
        make(options.out)
    else:
        subprocess.run([make_env(options.make_env), __file__, "--out", options.out], check=True)


if __name__ == "__main__":
    main()
