"""Compares the speed of two versions of Regard: the same work in two processes that take turns.

Each version is a source tree, such as a git worktree of an earlier commit. Prints for every work the median time with
each version, and the ratio after / before with a 95 % interval (bootstrap over the turns). A ratio whose interval
contains 1 is no difference that this machine can measure.

    git worktree add ../before COMMIT
    python benchmarks/versions.py ../before/src src                     # CPU, or a GPU if there is one
    python benchmarks/versions.py ../before/src src --work "step, bahdanau" --turns 60
    python benchmarks/versions.py src src                               # the noise of the machine
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Work = Callable[[], object]


def works(cuda: bool) -> dict[str, Callable[[], Work]]:
    """The works by name: each makes what is needed, and returns the call that is timed."""
    import torch

    from regard.decode import CapturedDecoder, collect, greedy, stream, with_onednn
    from regard.models import BertConfig, GptConfig, Seq2SeqConfig, TransformerConfig

    device = torch.device("cuda" if cuda else "cpu")
    sizes: dict[str, Any] = {"width": 256, "heads": 4, "layers": 4, "inner": 1024, "context": 64, "dropout": 0.0}
    vocab: dict[str, Any] = {"source_vocab": 8000, "target_vocab": 8000}
    configs = {
        "bahdanau": Seq2SeqConfig(**vocab, width=256, embed=256, capacity=64),
        "transformer": TransformerConfig(**vocab, **sizes),
        "gpt": GptConfig(vocab=8000, **sizes),
        "tiny gpt": GptConfig(vocab=8000, width=32, heads=4, layers=4, inner=64, context=64, dropout=0.0),
    }

    def built(config: Any) -> Any:
        torch.manual_seed(0)
        return config.build().to(device)

    def decoding(config: Any, fast: bool) -> Callable[[], Work]:
        def make() -> Work:
            model = built(config).eval()
            decoder: Any = model
            if fast:
                decoder = CapturedDecoder(model) if cuda else with_onednn(model)
            source = torch.randint(4, 8000, (16, 20), device=device) if config.reads_source else None
            prompt = torch.full((16,), 5, device=device)

            def run() -> None:
                with torch.no_grad():
                    state = model.start(source, None, 16, 24)
                    collect(stream(decoder, state, prompt, greedy, 20, -1))

            return run

        return make

    def training(config: Any, compiled: bool) -> Callable[[], Work]:
        def make() -> Work:
            from regard.training.loop import compile_blocks

            model = built(config).train()
            if compiled:
                compile_blocks(model)
            tokens = torch.randint(4, 8000, (16, 48), device=device)

            def run() -> None:
                model.features(tokens).square().mean().backward()
                model.zero_grad()

            return run

        return make

    def run_steps() -> Work:
        """Steps of `regard train dates`, which a GPU captures."""
        from regard import Run
        from regard.recipes import KINDS, change, find_recipe

        recipe = change(find_recipe("dates"), ["plan.steps=100000", f"plan.device={device.type}"], KINDS)
        run = Run(recipe, Path(tempfile.mkdtemp()) / "run")
        steps = run.trainer.steps(0)
        for _ in range(200 if cuda else 3):  # every shape is captured
            next(steps)

        def more() -> None:
            for _ in range(50 if cuda else 3):
                next(steps)

        return more

    found: dict[str, Callable[[], Work]] = {}
    for name, config in configs.items():
        found[f"step, {name}"] = decoding(config, fast=False)
        found[f"step, {name}, {'captured' if cuda else 'oneDNN'}"] = decoding(config, fast=True)
    bert = BertConfig(vocab=8000, **sizes)
    found["training, bert"] = training(bert, compiled=False)
    found["training, bert, compiled"] = training(bert, compiled=True)
    found["training, gpt"] = training(configs["gpt"], compiled=False)
    found["training, dates" + (", captured" if cuda else "")] = run_steps
    return found


def serve() -> None:
    """The process of one version: reads the name of a work, then a line for each turn, and answers with seconds."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cuda = torch.cuda.is_available()
    made = works(cuda)
    print(json.dumps(list(made)), flush=True)
    run: Work | None = None
    for line in sys.stdin:
        if line.startswith("make "):
            run = made[json.loads(line.removeprefix("make "))]()
            for _ in range(3):
                run()
            print("null", flush=True)
            continue
        assert run is not None
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        if cuda:
            torch.cuda.synchronize()
        print(json.dumps(time.perf_counter() - began), flush=True)


class Version:
    """A source tree in a process of its own, which waits for its turn."""

    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve())}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.names: list[str] = self._read()

    def make(self, work: str) -> None:
        self._ask(f"make {json.dumps(work)}")

    def turn(self) -> float:
        return float(self._ask("go"))

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self._process.args))}: ended early; see its error above")  # type: ignore[arg-type]
        return json.loads(line)


def interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the medians after / before, and its 95 % interval by bootstrap."""
    draw = random.Random(0)

    def ratios() -> Iterator[float]:
        for _ in range(2000):
            rows = draw.choices(range(len(before)), k=len(before))
            yield statistics.median(after[row] for row in rows) / statistics.median(before[row] for row in rows)

    found = sorted(ratios())
    return statistics.median(after) / statistics.median(before), found[50], found[-51]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", help="the source tree of the earlier version")
    parser.add_argument("after", nargs="?", help="the source tree of the later version")
    parser.add_argument("--work", nargs="*", help="the works; all, if none is named")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    if given.after is None:
        parser.error("name two source trees, such as ../before/src src")
    sides = [Version(given.before), Version(given.after)]
    for work in given.work or sides[0].names:
        for side in sides:
            side.make(work)
        times: list[list[float]] = [[], []]
        for turn in range(given.turns):
            for number in (0, 1) if turn % 2 else (1, 0):
                times[number].append(sides[number].turn())
        ratio, least, most = interval(*times)
        medians = [1000 * statistics.median(each) for each in times]
        if given.json:
            print(json.dumps({"work": work, "before": medians[0], "after": medians[1], "ratio": [ratio, least, most]}))
        else:
            of_work = f"{work:28} {medians[0]:9.2f} ms {medians[1]:9.2f} ms"
            print(f"{of_work}   {ratio:.3f} ({least:.3f} to {most:.3f})", flush=True)


if __name__ == "__main__":
    main()
