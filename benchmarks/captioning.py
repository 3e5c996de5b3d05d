"""Captions of 1,000 image files by beam search, end to end: `regard.verbs.caption` against a plain PyTorch loop.

The plain loop is what tutorials write: it opens an image, encodes it, and runs a beam search of its own with
`nn.LSTMCell`, one image at a time; the beam is the batch. Both sides have the weights of the same model and read the
same PNG files. They take turns, and the medians are compared. The captions must be equal, except where two have almost
the same score.

    regard train scenes --out runs/scenes
    python benchmarks/captioning.py runs/scenes
    python benchmarks/captioning.py runs/scenes --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from regard import verbs
from regard.data.scenes import Scenes
from regard.verbs.loaded import Loaded

LIMIT = 60  # tokens of a caption


class PlainLoop(nn.Module):
    """Bahdanau's decoder with one LSTM layer as a loop of cells, with the weights of a captioner."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__()
        model = loaded.module
        config, weights = model.config, model.state_dict()
        self.encoder, self.bridge, self.embedding = model.encoder, model.bridge, model.target_embedding
        self.score, self.out, self.readout = model.decoder.attention.score, model.decoder.out, model.readout_
        self.cell = nn.LSTMCell(config.embed + config.width, config.width).to(loaded.device)
        for name, _ in self.cell.named_parameters():
            self.cell.get_parameter(name).data = weights[f"decoder.rnn.onward.0.{name}_l0"]
        self.size, self.tokenizer, self.device = config.image, loaded.target_tokenizer, loaded.device

    @torch.no_grad()
    def caption(self, path: Path, beam: int) -> str:
        """The best of `beam` captions by their mean log-probability. No prefix is better when the search ends."""
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((self.size, self.size)))
        source = self.encoder(torch.from_numpy(pixels.copy())[None].to(self.device))
        states = source.states  # (1, cells, width)
        keys = self.score.key(states)
        hidden, memory = torch.tanh(self.bridge(source.summary)).chunk(2, dim=-1)
        start, *_, end = self.tokenizer.special_tokens.wrap_target([0])
        rows, scores = [[start]], torch.zeros(1, device=self.device)
        found: list[tuple[float, list[int]]] = []
        for length in range(1, LIMIT + 1):
            x = self.embedding(torch.tensor([row[-1] for row in rows], device=self.device))
            hidden, memory, context = self.step(x, hidden, memory, states, keys)
            features = torch.tanh(self.out(torch.cat([hidden, context, x], -1)))
            logps = scores[:, None] + self.readout(features).log_softmax(-1)  # (rows, vocabulary)
            best, places = logps.flatten().topk(2 * beam)
            kept: list[tuple[int, int, float]] = []
            for rank, (score, place) in enumerate(zip(best.tolist(), places.tolist())):
                row, token = divmod(place, logps.shape[1])
                if token == end:
                    if rank < beam:
                        found = sorted([*found, (score / length, rows[row][1:])])[-beam:]
                elif len(kept) < beam:
                    kept.append((row, token, score))
            if len(found) == beam and kept[0][2] / length <= found[0][0]:
                break
            chosen = [row for row, *_ in kept]
            rows = [[*rows[row], token] for row, token, _ in kept]
            hidden, memory = hidden[chosen], memory[chosen]
            scores = torch.tensor([score for *_, score in kept], device=self.device)
        return self.tokenizer.decode(found[-1][1]) if found else ""

    def step(
        self, x: Tensor, hidden: Tensor, memory: Tensor, states: Tensor, keys: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The state (h, c) after the embedded tokens (rows, embed), and the context that was read before them."""
        energy = torch.tanh(self.score.query(hidden)[:, None] + keys) @ self.score.v
        context = (energy.softmax(-1)[:, None] @ states).squeeze(1)
        hidden, memory = self.cell(torch.cat([x, context], -1), (hidden, memory))
        return hidden, memory, context


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a directory of `regard train scenes` with model.decoder=bahdanau")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    loaded = verbs.load(given.run, device=given.device, precision="float32")
    loop = PlainLoop(loaded)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, example in enumerate(Scenes(train=1, valid=1, test=given.images, seed=7).load().test):
            paths.append(Path(folder) / f"{number}.png")
            Image.fromarray(np.asarray(example.image)).save(paths[-1])
        verbs.caption(loaded, paths[:64], given.beam)  # warms up
        times: dict[str, list[float]] = {"regard": [], "plain": []}
        for _ in range(given.turns):
            began = time.perf_counter()
            ours = [one.text for one in verbs.caption(loaded, paths, given.beam)]
            times["regard"].append(time.perf_counter() - began)
            began = time.perf_counter()
            plain = [loop.caption(path, given.beam) for path in paths]
            times["plain"].append(time.perf_counter() - began)
    same = sum(one == other for one, other in zip(ours, plain))
    speeds = {name: given.images / statistics.median(found) for name, found in times.items()}
    figures = ", ".join(f"{name} {speed:,.0f} images/s" for name, speed in speeds.items())
    ratio = speeds["regard"] / speeds["plain"]
    print(
        f"captions on {given.device}, beam {given.beam}: {figures}; ratio {ratio:.2f}; {same} of {given.images} equal"
    )


if __name__ == "__main__":
    main()
