"""A language model of a text that is larger than memory: how long until it trains, and how much memory it takes.

A seeded text is made: words of a Zipf vocabulary with spaces, punctuation and line ends. `regard train text data=book`
is started on it in a process of its own, killed after some steps (SIGKILL, once a step is saved), and resumed. Twice
a second RssAnon (memory of the process itself), RssFile (pages of mapped files) and VmHWM (the most of both together)
are read from /proc/PID/status, so that this runs on Linux only.

    python benchmarks/large_text.py                       # 3 GiB
    python benchmarks/large_text.py --gib 0.2 --json

`first start` counts from the start of the command to the first step that is logged: the text is checked, the tokenizer
is trained on a sample, the text is encoded. `resume` counts the same after the kill, when the token file exists.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SEED = 7
WORDS = 1_000_000  # different words: the tokenizer's sample has most of them
DRAWN = 1_000_000  # words that are drawn at once
LONGEST = 10  # letters of a word
LETTERS = b"etaoinshrdlucmfwypvbgkqjxz"
ENDS = {b" ": 0.85, b", ": 0.06, b". ": 0.05, b".\n": 0.03, b"\n\n": 0.01}
KINDS = ("RssAnon", "RssFile", "VmHWM")


def write_text(path: Path, size: int) -> None:
    """Write a text of at least `size` bytes."""
    rng = np.random.default_rng(SEED)
    shares = 1 / np.arange(2, len(LETTERS) + 2)
    words = rng.choice(np.frombuffer(LETTERS, np.uint8), (WORDS, LONGEST), p=shares / shares.sum())
    words[np.arange(LONGEST) >= rng.integers(2, LONGEST + 1, WORDS)[:, None]] = 0  # which is left out of the text
    ends = np.array([list(end.ljust(2, b"\0")) for end in ENDS], dtype=np.uint8)
    zipf = np.cumsum(1 / np.arange(1, WORDS + 1) ** 1.05)
    with path.open("wb") as file:
        while file.tell() < size:
            drawn = words[np.searchsorted(zipf, rng.random(DRAWN) * zipf[-1])]
            block = np.concatenate([drawn, ends[rng.choice(len(ends), DRAWN, p=list(ENDS.values()))]], axis=1)
            file.write(block[block != 0].tobytes())


def memory(process: int) -> dict[str, int]:
    """The memory of a process in bytes; nothing once it has ended."""
    try:
        lines = [line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines()]
    except OSError:
        return {}
    return {words[0][:-1]: int(words[1]) * 1024 for words in lines if words and words[0][:-1] in KINDS}


def watched(command: list[str], environment: dict[str, str], log: Path, until: Any) -> dict[str, Any]:
    """Run a command until a condition holds or it ends, then kill it: seconds and the most memory of each kind."""
    found: dict[str, Any] = dict.fromkeys(KINDS, 0)
    began = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        while process.poll() is None:
            for kind, taken in memory(process.pid).items():
                found[kind] = max(found[kind], taken)
            told = log.read_text()
            if "first_step" not in found and re.search(r"step \d+/", told):
                found["first_step"] = time.monotonic() - began
            if until(told):
                process.kill()
            time.sleep(0.5)
    found |= {"seconds": time.monotonic() - began, "rc": process.returncode, "log": log.read_text()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=3.0, help="size of the text")
    parser.add_argument("--tokens", default="byte-bpe", help="what the text is cut into")
    parser.add_argument("--steps", type=int, default=40, help="of training in all; it is killed after half of them")
    parser.add_argument("--text", type=Path, default=None, help="an existing text, instead of one that is made")
    parser.add_argument("--folder", type=Path, default=None, help="where everything is made, and removed afterwards")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        text, run = given.text or folder / "text.txt", folder / "run"
        began = time.monotonic()
        if given.text is None:
            write_text(text, int(given.gib * 2**30))
        made = time.monotonic() - began
        time.sleep(3)  # a file that changed a moment ago is not yet known by its time
        half = given.steps // 2
        plan = [f"plan.steps={given.steps}", f"plan.evaluate={half}", "plan.log=1", "plan.batch_tokens=2048"]
        model = ["model=gpt", "model.width=64", "model.heads=2", "model.layers=2", "model.context=128"]
        data = ["data=book", f"data.train={text}", f"data.tokens={given.tokens}", "data.valid_tokens=20000"]
        command = [sys.executable, "-m", "regard", "train", "text", "--out", str(run)]
        environment = {**os.environ, "REGARD_CACHE": str(folder / "cache"), "COLUMNS": "200"}
        saved = run / "steps" / f"{half:06d}"
        first = watched([*command, *data, *model, *plan], environment, folder / "first.log", lambda _: saved.is_dir())
        resumed = watched([*command, "--resume"], environment, folder / "second.log", lambda _: False)
        (tokens,) = (folder / "cache" / "tokens").glob("*.bin")
        about = json.loads(tokens.with_suffix(".json").read_text())
        rates = [float(line["tokens_per_second"]) for line in _logged(run) if line.get("kind") == "train"]
        encoded = _encoding(first["log"])
        found = {
            "text bytes": text.stat().st_size,
            "token file bytes": tokens.stat().st_size,
            "tokens": about["tokens"],
            "seconds to make the text": made,
            "seconds to the first step": first.get("first_step"),
            "seconds to the first step, resumed": resumed.get("first_step"),
            "encoding, MB a second": encoded and encoded / 1e6,
            "encoding, tokens a second": encoded and encoded * about["tokens"] / about["bytes"],
            "training, tokens a second": float(np.median(rates)) if rates else None,
            "peak RssAnon, MiB": first["RssAnon"] / 2**20,
            "peak RssAnon, MiB, resumed": resumed["RssAnon"] / 2**20,
            "peak RssFile, MiB": max(first["RssFile"], resumed["RssFile"]) / 2**20,
            "peak VmHWM, MiB": max(first["VmHWM"], resumed["VmHWM"]) / 2**20,
            "exit of the resumed run": resumed["rc"],
            "encoded again": "encoding" in resumed["log"],
        }
        if resumed["rc"] or not rates:
            print(first["log"][-3000:], resumed["log"][-3000:], sep="\n---\n", file=sys.stderr)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        print(f"{key:36}" + (f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if value else str(value)))


def _encoding(log: str) -> float | None:
    """Bytes of text that are encoded in a second, by the lines of the log, which come about every ten seconds."""
    done = [float(megabytes.replace(",", "")) for megabytes in re.findall(r"encoding, ([\d,]+) of", log)]
    return (done[-1] - done[0]) * 1e6 / (10 * (len(done) - 1)) if len(done) > 1 else None


def _logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    main()
