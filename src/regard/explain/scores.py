"""The scores, and their names in lectures and papers.

A score computes one number, the logit, from a query and a key. A softmax over all keys makes weights of the logits. The
kinds of attention in the literature differ mainly in their score, and the same score has several names. The table has
the name of the setting here (model.score=…) beside the others.

Additive attention is a small network with one hidden layer (Bahdanau et al. 2015). Luong et al. (2015) write it with
one matrix for query and key together, vᵀ tanh(W[q; k]), and call it concat. Both are the same: with W = [W₁ W₂], the
product W[q; k] is W₁q + W₂k.
Dot-product scores are also called multiplicative. In lectures, multiplicative mostly means the one with a matrix, qᵀWk,
which Luong et al. call general. Content-based means the cosine in many lectures (Graves et al. 2014); Luong et al. use
this word for every score that compares the query with the keys, in contrast to location-based, where the logits depend
on the query and the position alone.

The second table and the picture show what each score computes for the same random query and keys. The last column has
the last key multiplied by 3: dot products grow with the length of a key, a cosine does not change, and location-based
attention does not use the keys at all.
"""

import torch
from torch import Tensor

from regard.attention import weights
from regard.explain.options import ScoresOptions
from regard.explain.topic import Report, Result, no_report, prose
from regard.report.sections import Cell, Heatmap, Heatmaps, Section, Table
from regard.scores import OTHER_NAMES, SCORES, Score

FORMULAS = {  # of SCORES: the logit of query q and key k, and where it is from
    "dot": ("qᵀk", "Luong 2015"),
    "scaled_dot": ("qᵀk / √width", "Vaswani 2017"),
    "general": ("qᵀWk", "Luong 2015"),
    "additive": ("vᵀ tanh(Wq + Uk)", "Bahdanau 2015"),
    "cosine": ("β cos(q, k)", "Graves 2014"),
    "location": ("(Wq) at k's position", "Luong 2015"),
    "relative": ("qᵀ(k + r) / √width", "Shaw 2018"),
}


def run(options: ScoresOptions, report: Report = no_report) -> Result:
    """Computes the weights of one query over the same keys by every score."""
    torch.manual_seed(options.seed)
    q, k = torch.randn(1, options.width), torch.randn(options.keys, options.width)
    longer = torch.cat([k[:-1], 3 * k[-1:]])
    names = {name: [other for other, ours in OTHER_NAMES.items() if ours == name] for name in SCORES}
    found, rows = {}, list[list[Cell]]()
    for name, build in SCORES.items():
        torch.manual_seed(options.seed)
        score = build(options.width, options.keys)
        found[name] = [_weights(score, q, keys) for keys in (k, longer)]
        formula, paper = FORMULAS[name]
        rows.append([name, ", ".join(names[name]) or "–", formula, paper])
    columns = [f"key {at}" for at in range(options.keys)]
    table = [[name, *(f"{weight:.3f}" for weight in each[0]), f"{each[1][-1]:.3f}"] for name, each in found.items()]
    heatmap = Heatmap("weights", "", "", [each[0] for each in found.values()], list(found), columns, side=36, vmax=1.0)
    sections: list[Section] = [
        prose(__doc__),
        Table(
            "The scores and their names",
            ["model.score", "also called", "logit of q and k", "from"],
            rows,
            "In relative, r is a vector that is learned for each distance between query and key.",
        ),
        Table(
            "The weights of one query",
            ["", *columns, f"key {options.keys - 1} × 3"],
            table,
            "The last column is the weight of the last key if this key is multiplied by 3. The matrices of the scores "
            "are random, as before training.",
        ),
        Heatmaps("The weights as a picture", [heatmap]),
    ]
    data = {"seed": options.seed, "width": options.width, "names": names, "weights": found}
    about = (
        f"No model is trained. One query and {options.keys} keys of width {options.width} are random numbers, and so "
        f"are the matrices of the scores (seed {options.seed})."
    )
    return Result("Scores: how a query is compared with a key", about, data, sections)


@torch.no_grad()
def _weights(score: Score, q: Tensor, k: Tensor) -> list[float]:
    return weights(score, q, score.keys(k))[0].tolist()
