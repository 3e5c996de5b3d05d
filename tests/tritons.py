"""Where Triton's programs can be tested: on a GPU, or in the interpreter, which is another process."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if GPU else "cpu"

runs = pytest.mark.skipif(not (GPU or INTERPRETED), reason="Triton needs a GPU, or TRITON_INTERPRET=1")
starts_interpreter = pytest.mark.skipif(
    GPU or INTERPRETED or importlib.util.find_spec("triton") is None,
    reason="this runs the programs itself, or Triton is not installed",
)


if INTERPRETED:
    # What a masked load leaves out is undefined on a GPU. The interpreter would read zeros; here it reads infinity.
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    load = InterpreterBuilder.create_masked_load

    def load_undefined(self, pointers, mask, other, *options):  # type: ignore[no-untyped-def]
        found = load(self, pointers, mask, other, *options)
        if other is None and found.data.dtype.kind == "f":
            found = TensorHandle(np.where(mask.data, found.data, found.data.dtype.type(np.inf)), found.dtype)
        return found

    InterpreterBuilder.create_masked_load = load_undefined


def interpret(file: str, *options: str) -> None:
    """Runs a file's tests once more, in the interpreter."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
