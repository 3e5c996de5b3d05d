"""Cross-entropy of a large vocabulary: our chunks, gradients made at once, against torch's linear and cross-entropy.

Every side runs in this one process on the same numbers, forward and backward, as a step of training does: float32
weights and, on a GPU, bfloat16 products by autocast. "peak" is a GPU's memory beyond the inputs.

    python benchmarks/cross_entropy.py              # 65536 positions, 50304 words on a GPU; small sizes on a CPU
    python benchmarks/cross_entropy.py --vocab 50257 --json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.cross_entropy import linear_cross_entropy

SIZES = {"cuda": (65536, 768, 50304), "cpu": (2048, 256, 8000)}  # positions, width, vocabulary
Loss = Callable[[Tensor, Tensor, None, Tensor], Tensor]


@dataclass(frozen=True)
class Measured:
    side: str
    milliseconds: float
    forward_milliseconds: float  # without gradients, as in evaluation
    gibibytes: float | None  # None on a CPU
    loss: float


def formula(x: Tensor, weight: Tensor, bias: None, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight, bias).float(), targets, reduction="sum")


def precision(device: str) -> AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()


def made(device: str, count: int, width: int, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    """x in the dtype that a model's last layer has it in, the weight, and targets of which a tenth is padding."""
    x = torch.randn(count, width, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    weight = torch.randn(vocab, width, device=device) / width**0.5
    targets = torch.randint(vocab, (count,), device=device).masked_fill_(torch.rand(count, device=device) < 0.1, -100)
    return x.requires_grad_(), weight.requires_grad_(), targets


def milliseconds(work: Callable[[], object], device: str, times: int) -> float:
    """The median of repeated runs after two to warm up."""
    took = []
    for _ in range(times + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        took.append(1000 * (time.perf_counter() - start))
    return sorted(took[2:])[times // 2]


def measure(side: str, loss: Loss, given: tuple[Tensor, Tensor, Tensor], times: int) -> Measured:
    x, weight, targets = given
    device = x.device.type

    def step() -> Tensor:
        with precision(device):
            found = loss(x, weight, None, targets)
        torch.autograd.grad(found / len(x), (x, weight))
        return found.detach()

    @torch.no_grad()
    def forward() -> Tensor:
        with precision(device):
            return loss(x, weight, None, targets)

    peak = None
    whole = milliseconds(step, device, times)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step()
        peak = (torch.cuda.max_memory_allocated() - held) / 2**30
    return Measured(side, whole, milliseconds(forward, device, times), peak, float(step()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, size in zip(("positions", "width", "vocab"), SIZES[device]):
        parser.add_argument(f"--{name}", type=int, default=size)
    sides: dict[str, Loss] = {"ours": linear_cross_entropy, "eager": formula}
    sides["compiled"] = torch.compile(formula, dynamic=False)
    parser.add_argument("--sides", nargs="+", choices=sides, default=list(sides))
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each side")
    args = parser.parse_args()
    torch.manual_seed(0)
    given = made(device, args.positions, args.width, args.vocab)
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    setting = {
        "where": where,
        "torch": torch.__version__,
        **{n: vars(args)[n] for n in ("positions", "width", "vocab")},
    }
    if not args.json:
        print("  ".join(f"{name} {value}" for name, value in setting.items()), flush=True)
    first: Measured | None = None
    for side in args.sides:
        try:
            found = measure(side, sides[side], given, args.times)
        except torch.OutOfMemoryError:
            print(f"{side:9s} out of memory", flush=True)
            continue
        first = first or found
        ratios = {"time_ratio": found.milliseconds / first.milliseconds}
        if found.gibibytes and first.gibibytes:
            ratios["memory_ratio"] = found.gibibytes / first.gibibytes
        print(json.dumps(setting | vars(found) | ratios) if args.json else line(found, ratios), flush=True)


def line(found: Measured, ratios: dict[str, float]) -> str:
    memory = "      " if found.gibibytes is None else f"{found.gibibytes:6.2f}"
    times = "  ".join(f"{name.replace('_', ' ')} {ratio:5.2f}" for name, ratio in ratios.items())
    return (
        f"{found.side:9s} forward + backward {found.milliseconds:9.2f} ms  forward {found.forward_milliseconds:9.2f} ms"
        f"  peak {memory} GiB  {times}  loss {found.loss:.6g}"
    )


if __name__ == "__main__":
    main()
