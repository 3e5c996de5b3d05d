"""Filters and heads: the patterns that three networks detect.

A convolution has filters. A filter is a small array of weights that is moved over the input. At every position its
output is the sum of the inputs in its window, each times its weight, so the output is large where the input looks like
the filter. In the first layer of a CNN for images the window is 3 × 3 pixels of three colours. In Kim's network for
sentences (Kim 2014) it is n words, and only the largest output of a text is kept. A head of attention (Vaswani et al.
2017) also gives weights to the inputs around a position, and adds the inputs up with them.

All three are small detectors of a pattern: each is applied at every position with the same parameters, and training
decides what the pattern is. They differ in where the weights come from. Those of a filter are parameters: after
training they are fixed, and the same for every input and every position, so a filter can be drawn without an input. A
head has fixed matrices that make queries and keys, but its weights are computed from the input: they are different for
each text and each position, and they reach every position that the mask allows and not only a window.

Without runs, three small networks are trained now: a captioner of drawn scenes, Kim's network that tells whether the
subject of a sentence is singular or plural, and a language model with one layer of attention. With runs, each of them
shows what it has.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.efficientnet import load_efficientnet
from regard.data.fields import LabelField
from regard.data.scenes import Scenes
from regard.errors import UserError
from regard.explain.experiment import train_prepared, training_of
from regard.explain.grammar import Sentences
from regard.explain.heads import head_statistics
from regard.explain.options import FiltersOptions
from regard.explain.tokenized import tokenize
from regard.explain.topic import Report, Result, check_index, no_report, prose, reading
from regard.layers.transformer import Block
from regard.models import CaptionerConfig, GptConfig, KimConfig
from regard.objectives import Captioning, Classification, TeacherForcing
from regard.recipes import Plan, Recipe, with_kinds
from regard.render import AttentionView, Layer
from regard.report.sections import Gallery, Heatmap, Heatmaps, Section, Table
from regard.training.prepare import prepare
from regard.verbs import Loaded, load
from regard.verbs.filters import SHOWN, strongest_ngrams

READING = """
A filter of the CNN looks for a colour if its sums have different sizes or signs. With the default options, filters 2
and 4 respond to red, filter 7 to blue, and filter 1 to green without blue. Filters with about as many edges as random
weights, such as 0 and 5, have no clear pattern after so few steps.

Each of Kim's filters responds to n-grams that are alike, such as a plural noun with a plural verb. These n-grams
support the class of their number. The weights of a filter do not change with the text: “cats fall” has the same output
in every sentence.

Head 0 of the language model finds the subject. At “tree”, before the verb, almost all of its weight is on “dogs”, with
which the verb agrees. A filter of two or three words cannot do this: the subject is at a different distance in each
sentence, and a filter has a fixed weight for each place of its window. With the seeds 1 to 5 the largest weight that a
head gives to “dogs” there is 0.82 to 0.99; the seed decides which head it is.
"""
TEXT = "the dogs behind a tree sleep ."  # what the small language model reads
CHANNELS = ("red", "green", "blue")
TEXTS = 1000  # the most validation texts of a run that n-grams are taken from
NGRAMS = 3  # of each filter
STATISTICS = ("previous", "itself", "first", "entropy", "distance")


def run(options: FiltersOptions, report: Report = no_report) -> Result:
    """Shows the filters and heads of three networks that are trained now, or of given runs."""
    if options.runs:
        models = [load(path, "cpu") for path in options.runs]
        about = f"The models are runs: {', '.join(map(str, options.runs))}."
    else:
        models = small_models(options, report)
        about = (
            f"Three small networks, {training_of(options.steps, options.seed)}: a captioner of drawn scenes with 8 "
            "filters in its first layer, Kim's network with filters of 2 and 3 words, and a language model with one "
            "layer of 4 heads. The sentences are those of a toy grammar; chance is 50 % for the class of a sentence."
        )
    sections, data = list[Section](), dict[str, Any]()
    for model in models:
        found = [one for one in (kernels(model), ngrams(model), heads(model, options)) if one is not None]
        if not found:
            raise UserError(
                f"{model.path}: {model.kind} without filters and heads; give runs of model=captioner, kim or gpt."
            )
        for part, numbers, shown in found:
            data.setdefault(part, []).append({"model": model.name, **numbers})
            sections += shown
    sections = [prose(__doc__), *sections, *([] if options.runs else [reading(READING, options)])]
    return Result("Filters and heads", about, {"seed": options.seed, "steps": options.steps, **data}, sections)


def small_models(options: FiltersOptions, report: Report) -> list[Loaded]:
    """The models of the small recipes, trained now."""
    kinds, recipes = with_kinds({"data": {"sentences": Sentences}}), small_recipes(options)
    return [train_prepared(one.name, prepare(one, kinds=kinds), options.steps, report, kinds) for one in recipes]


def small_recipes(options: FiltersOptions) -> Iterator[Recipe]:
    """A captioner, Kim's network and a language model with one layer of attention."""
    steps, seed = options.steps, options.seed
    count = min(2000, max(1, steps) * 32)  # examples
    scenes = Scenes(train=count, valid=1, test=1, objects=3, size=32, seed=seed)
    sentences = Sentences(count, seed=seed)
    captioner = CaptionerConfig(width=32, embed=32, decoder="luong", dropout=0.0)
    kim = KimConfig(kernels=(2, 3), filters=4, embed=16, dropout=0.0)
    gpt = GptConfig(width=64, heads=4, layers=1, inner=128, context=32, dropout=0.0)
    plan = Plan(max(1, steps), batch_tokens=512, schedule="linear", warmup=steps // 10, seed=seed, device="cpu")
    images = replace(plan, batch_tokens=768, rate=4e-3)
    yield Recipe("captioner", "", scenes, captioner, Captioning(doubly=0.0), images, ())
    yield Recipe("Kim's network", "", sentences, kim, Classification(), replace(plan, rate=1e-2), ())
    yield Recipe("language model", "", sentences, gpt, TeacherForcing(), replace(plan, rate=3e-3), ())


Found = tuple[str, dict[str, Any], list[Section]]  # what it is, its numbers, its sections


def kernels(model: Loaded) -> Found | None:
    """The kernels of the first layer of a CNN, the model's own or the frozen one whose features it reads."""
    if not model.reads_images:
        return None
    own = [part for part in model.module.modules() if isinstance(part, nn.Conv2d)]
    network = model.module if own else load_efficientnet(model.device).network
    first = next(part for part in network.modules() if isinstance(part, nn.Conv2d))
    weights = first.weight.detach().float()  # (filters, 3, height, width)
    most, (height, width) = math.ceil(100 * float(weights.abs().max())) / 100, weights.shape[2:]
    gap = torch.full((len(weights), 3, height, 1), torch.nan)
    drawn = torch.cat([weights, gap], dim=3).transpose(1, 2).flatten(2)[..., :-1]  # the channels side by side
    columns = [*" ".join(name[0].upper() * width for name in CHANNELS)]
    maps = [
        Heatmap(f"filter {at}", "red, green, blue", "", one.numpy(), [" "] * height, columns, 22, most)
        for at, one in enumerate(drawn)
    ]
    sums = weights.sum(dim=(2, 3))  # the output for a plain red, green or blue window
    flat = (sums.square().sum(dim=1) / (height * width)) / weights.square().sum(dim=(1, 2, 3))
    rows = [
        [f"#{at}", *(f"{value:+.2f}" for value in one), f"{1 - part:.0%}"]
        for at, (one, part) in enumerate(zip(sums.tolist(), flat.tolist()))
    ]
    title = f"First layer of the CNN of {model.name}: {len(weights)} filters of {height} × {width} pixels"
    note = (
        "red, green, blue: the sum of the filter's weights for a colour; in a plain area the output grows by it if the "
        "colour is one unit brighter. Edges: the part of the squared weights that is not in the mean weight of each "
        "colour; in a plain area this part adds nothing. With random weights it is about "
        f"{1 - 1 / (height * width):.0%}."
    )
    sections: list[Section] = [
        Heatmaps(title, maps),
        Table(title, ["filter", *CHANNELS, "edges"], rows, note),
    ]
    return "kernels", {"weights": weights, "sums": sums, "edges": 1 - flat}, sections


def ngrams(model: Loaded) -> Found | None:
    """The strongest n-grams of each filter over text, and the output that the filter supports most."""
    sizes = model.module.config.filter_sizes
    if not sizes:
        return None
    if model.recipe is None:
        raise UserError(f"{model.path}: a checkpoint has no data to take n-grams from; give a run of regard train.")
    texts = [example.text for example in model.corpus().valid[:TEXTS]]
    found = strongest_ngrams(model, texts, NGRAMS)
    module: Any = model.module
    with torch.no_grad():  # above the filters the network is linear: this is the weight of each filter for each output
        features = torch.cat([torch.zeros(1, len(sizes)), torch.eye(len(sizes))])[:, None]
        outputs: Tensor = module.readout(features).reshape(len(features), -1)
    effects = outputs[1:] - outputs[0]
    effects = effects - effects.mean(dim=1, keepdim=True) if effects.shape[1] > 1 else effects
    names = next((each.names for each in model.fields.values() if isinstance(each, LabelField)), ("the number",))
    best = effects.argmax(dim=1).tolist()
    shown = [" · ".join(f"{one.text} ({one.feature:.1f})" for one in ngrams) or "–" for ngrams in found]
    weights = [each[k] for each, k in zip(effects.tolist(), best)]
    rows = [
        [f"#{at}", sizes[at], names[best[at]], f"{weights[at]:+.2f}", shown[at]]
        for at in sorted(range(len(sizes)), key=lambda at: -abs(weights[at]))
    ]
    table = Table(
        f"Filters of {model.name} over n words, with their strongest n-grams",
        ["filter", "n", "supports", "weight", "n-grams and their outputs"],
        rows,
        f"The n-grams are those of {len(texts)} validation texts. The weight is that of the filter for the class that "
        "it supports most, minus the mean over the classes. The filters with the largest weights come first.",
        first=SHOWN,
    )
    numbers = [
        {"size": size, "ngrams": [asdict(one) for one in ngrams], "supports": names[k], "weight": weight}
        for size, ngrams, k, weight in zip(sizes, found, best, weights)
    ]
    return "ngrams", {"filters": numbers}, [table]


def heads(model: Loaded, options: FiltersOptions) -> Found | None:
    """The heads of one layer of a Transformer while it reads a text."""
    if not any(isinstance(part, Block) for part in model.module.modules()):
        return None
    text = options.text or ("" if options.runs else TEXT)
    if not text.strip():
        raise UserError(f'text=: {model.path} has heads; give what it reads, such as text="a line of text".')
    one = tokenize(model, text)
    layer = check_index("layer", options.layer, len(one.weights))
    weights = [*one.weights.values()][layer].float()
    title = f"Layer {layer} of {model.name}: {len(weights)} heads"
    views = [
        AttentionView(
            f"head {at}", one.pieces, one.pieces, [Layer(f"layer {layer}", head[None].numpy(), kept_heads=(at,))]
        )
        for at, head in enumerate(weights)
    ]
    others = weights * (1 - torch.eye(len(one.pieces)))
    others[:, :, 0] = 0.0
    largest = others.flatten(1).max(dim=1)  # neither on the token itself nor on the first
    pairs = [[one.pieces[at] for at in divmod(place, len(one.pieces))] for place in largest.indices.tolist()]
    strongest = [f"{' → '.join(pair)} ({value:.2f})" for pair, value in zip(pairs, largest.values.tolist())]
    statistics = head_statistics([({title: weights}, one.separators)])
    rows = [
        ["uniform" if each.head < 0 else f"#{each.head}", *(f"{getattr(each, name):.2f}" for name in STATISTICS), most]
        for each, most in zip(statistics, [*strongest, "–"])
    ]
    note = (
        f"Means over the {len(one.pieces)} tokens of “{text}”: the weight on the previous token, on the token itself "
        "and on the first, the entropy in nats and the mean distance. Another text has other weights."
    )
    columns = ["head", *STATISTICS, "largest weight elsewhere"]
    sections: list[Section] = [Gallery(title, views), Table(title, columns, rows, note)]
    numbers = {"layer": layer, "text": text, "pieces": one.pieces, "weights": weights, "statistics": statistics}
    return "heads", numbers, sections
