"""Quality against source length, with and without attention: the bottleneck of one fixed vector, as a curve.

Takes translations of one test set and buckets them by the number of words in the source:

    regard translate runs/attention --beam 5 < test.de > attention.en
    regard translate runs/once --beam 5 < test.de > once.en
    python benchmarks/bottleneck.py test.de test.en "Bahdanau=attention.en" "no attention=once.en" -o bottleneck.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.data.files import read_lines
from regard.file_io import write_file
from regard.metrics import bleu
from regard.render.charts import curve_svg
from regard.report.sections import Curve, Line

EDGES = (6, 8, 10, 12, 14, 17, 21)  # words: each bucket ends before the next edge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("translations", nargs="+", metavar="NAME=FILE")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    sources, references = list(read_lines(args.source)), list(read_lines(args.reference))
    lengths = [len(line.split()) for line in sources]
    bounds = list(zip((0, *EDGES), (*EDGES, 10**9)))
    buckets = [[i for i, length in enumerate(lengths) if low <= length < high] for low, high in bounds]
    middles = [sum(lengths[i] for i in rows) / len(rows) for rows in buckets if rows]
    print("words in the source".ljust(24), *(f"{middle:7.1f}" for middle in middles), "     all")
    print("sentences".ljust(24), *(f"{len(rows):7d}" for rows in buckets if rows), f"{len(sources):8d}")
    lines = []
    for each in args.translations:
        name, file = each.split("=", 1)
        said = list(read_lines(file))
        if len(said) != len(sources):
            parser.error(f"{file} has {len(said)} lines, {args.source} has {len(sources)}")
        scores = [bleu([said[i] for i in rows], [(references[i],) for i in rows]).score for rows in buckets if rows]
        whole = bleu(said, [(line,) for line in references])
        print(name.ljust(24), *(f"{score:7.2f}" for score in scores), f"{whole.score:8.2f}")
        lines.append(Line(name, middles, scores))
    print(whole.signature)
    if args.out:
        write_file(args.out, curve_svg(Curve("BLEU against source length", "words in the source", "BLEU", lines)))


if __name__ == "__main__":
    main()
