"""Word2vec against gensim: words per second, and the correlation with the judgements of MEN, in one run.

    REGARD_DATA=… python benchmarks/word2vec.py [--models skipgram cbow] [--workers 2] [--epochs 5] [--rounds 2]
    REGARD_DATA=… python benchmarks/word2vec.py --growth        # words per second on 1, 4 and 16 times the text

Both programs get WikiText-2 with the same settings: width 100, window 5, 5 negatives, sub-sampling 1e-3, words that
occur 5 times or more, rate 0.025. They take turns. Words are those of the text, rare words included.
The time is that of training alone, without the vocabulary and the tokens; the time of all is printed beside it. gensim
(pip install gensim) is needed for the comparison only.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import regard
from regard.data.files import find_data, read_text
from regard.recipes import KINDS, change, find_recipe
from regard.training.run import Run
from regard.verbs.neighbours import WordTable, word_similarity, word_table

TEXT, MEN = "wikitext2/wiki.train.tokens.gz", "wordsim/EN-MEN-TR-3k.txt.gz"


def ours(text: Path, folder: Path, model: str, workers: int, epochs: int, seed: int) -> tuple[float, float, WordTable]:
    """The seconds of training, the seconds of all, and the vectors."""
    settings = [f"data.train={text}", f"plan.epochs={epochs}", f"plan.seed={seed}", "plan.evaluate=100000"]
    if model == "glove":
        recipe = change(find_recipe("glove"), [*settings, f"objective.workers={workers}"], KINDS)
    else:
        recipe = change(find_recipe("word2vec"), [f"model={model}", *settings, f"objective.workers={workers}"], KINDS)
    began = time.perf_counter()
    run = Run(recipe, folder / f"{model}-{seed}", existing="overwrite")
    started = time.perf_counter()
    for _ in run:
        pass
    ended = time.perf_counter()
    return ended - started, ended - began, word_table(regard.load(run.out))


def gensims(
    text: Path, folder: Path, model: str, workers: int, epochs: int, seed: int
) -> tuple[float, float, WordTable]:
    """The same for gensim."""
    from gensim.models import Word2Vec
    from gensim.models.word2vec import LineSentence

    settings = {"vector_size": 100, "window": 5, "negative": 5, "sample": 1e-3, "min_count": 5, "alpha": 0.025}
    began = time.perf_counter()
    trained = Word2Vec(sg=int(model == "skipgram"), workers=workers, epochs=epochs, seed=seed, **settings)
    trained.build_vocab(LineSentence(str(text)))
    started = time.perf_counter()
    trained.train(LineSentence(str(text)), total_examples=trained.corpus_count, epochs=epochs)
    ended = time.perf_counter()
    words = trained.wv.index_to_key
    vectors = trained.wv.vectors / np.linalg.norm(trained.wv.vectors, axis=1, keepdims=True)
    return ended - started, ended - began, WordTable(words, {word: place for place, word in enumerate(words)}, vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["skipgram", "cbow"], help="skipgram, cbow or glove")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--growth", action="store_true", help="ours alone, one epoch, on 1, 4 and 16 times the text")
    parser.add_argument("--alone", action="store_true", help="without gensim")
    given = parser.parse_args()
    whole = read_text(find_data(TEXT))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for model in given.models:
            if given.growth:
                for times in (1, 4, 16):
                    (text := folder / f"text{times}").write_text(whole * times)
                    report(model, "regard", ours, text, folder, given.workers, 1, [1])
                continue
            (text := folder / "text").write_text(whole)
            programs = {"regard": ours, **({} if given.alone or model == "glove" else {"gensim": gensims})}
            rates = {name: [] for name in programs}
            for seed in range(1, given.rounds + 1):
                for name, program in programs.items():
                    rates[name] += report(model, name, program, text, folder, given.workers, given.epochs, [seed])
            if len(rates) > 1:
                pairs = [a / b for a, b in zip(rates["regard"], rates["gensim"])]
                print(f"{model}: regard / gensim {statistics.mean(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})")


def report(
    model: str,
    name: str,
    program: Callable[..., tuple[float, float, WordTable]],
    text: Path,
    folder: Path,
    workers: int,
    epochs: int,
    seeds: list[int],
) -> list[float]:
    """Run a program, print its figures, and return its words per second."""
    words, found = len(text.read_text().split()), []
    for seed in seeds:
        seconds, wall, table = program(text, folder, model, workers, epochs, seed)
        men = word_similarity(table, find_data(MEN))
        found.append(epochs * words / seconds)
        print(
            f"{model:<9}{name:<8}{workers} workers  {epochs} × {words / 1e6:.1f}M  {found[-1] / 1e3:7.0f}k words/s"
            f"  training {seconds:6.1f} s  all {wall:6.1f} s  MEN {men.spearman:.3f} ({men.covered} pairs)",
            flush=True,
        )
    return found


if __name__ == "__main__":
    main()
