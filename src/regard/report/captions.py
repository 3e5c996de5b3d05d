"""The report of the best and the worst captions of a data set, by CIDEr-D, with where each captioner looked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.data.example import Captioned
from regard.metrics import caption_bleu, caption_ciders
from regard.render.image_view import READING
from regard.report.sections import ImageGallery, Section, Table, Text
from regard.verbs.captioning import Caption, caption
from regard.verbs.loaded import Loaded
from regard.verbs.search import Search

BLEU4 = caption_bleu(4)


@dataclass(frozen=True)
class Ranked:
    """An image with its references, and the caption of each model with its CIDEr-D."""

    place: str  # such as "best 1"
    references: tuple[str, ...]
    captions: Sequence[Caption]
    scores: Sequence[float]

    @property
    def numbers(self) -> dict[str, Any]:
        found = [{"caption": one.text, "cider": score} for one, score in zip(self.captions, self.scores)]
        return {"place": self.place, "references": list(self.references), "captions": found}


@dataclass(frozen=True)
class ExtremeCaptions:
    """The captions of the first model with the highest and the lowest CIDEr-D, and those of the other models."""

    names: Sequence[str]  # of the models
    part: str
    images: int
    means: Sequence[tuple[float, float]]  # BLEU-4 and CIDEr-D of each model on all images
    ranked: Sequence[Ranked]

    @property
    def numbers(self) -> dict[str, Any]:
        means = [{"model": name, "bleu4": bleu, "cider": cider} for name, (bleu, cider) in zip(self.names, self.means)]
        ranked = [one.numbers for one in self.ranked]
        return {"split": self.part, "images": self.images, "models": means, "ranked": ranked}

    def table(self) -> Table:
        """The measures of each model on all images."""
        rows = [[name, f"{bleu:.2f}", f"{cider:.3f}"] for name, (bleu, cider) in zip(self.names, self.means)]
        return Table(f"{self.images:,} images of {self.part}", ["model", "BLEU-4", "CIDEr-D"], rows)

    def sections(self) -> list[Section]:
        """The measures, then each image with its references and a row of pictures for each model."""
        about = (
            f"All {self.images:,} images of {self.part} were described, and the captions of {self.names[0]} were "
            "sorted by CIDEr-D, the similarity with the references. The highest come first here, then the lowest; no "
            "image was chosen by hand.\n\n" + READING
        )
        found: list[Section] = [Text(about, "What is shown", "captions.md"), self.table()]
        for one in self.ranked:
            views = [
                replace(said.view, name=f"{name}: CIDEr-D {score:.2f}")
                for name, said, score in zip(self.names, one.captions, one.scores)
            ]
            references = " · ".join(one.references)
            found.append(ImageGallery(one.place.capitalize(), views, f"References: {references}"))
        return found


def extreme_captions(
    models: Sequence[Loaded], part: str, examples: Sequence[Captioned], count: int, search: Search
) -> ExtremeCaptions:
    """The `count` captions of the first model with the highest CIDEr-D, and the `count` with the lowest."""
    images, references = [one.image for one in examples], [(one.target, *one.others) for one in examples]
    settings = (search.beam, search.penalty, search.limit)
    texts = [[one.text for one in caption(model, images, *settings, align=False)] for model in models]
    scores = [caption_ciders(found, references) for found in texts]
    order = sorted(range(len(images)), key=lambda at: scores[0][at])
    worst = order[: min(count, len(order) // 2)]
    best = order[::-1][: min(count, len(order) - len(worst))]
    places = {at: f"best {number}" for number, at in enumerate(best, 1)}
    places |= {at: f"worst {number}" for number, at in enumerate(worst, 1)}
    shown = [caption(model, [images[at] for at in places], *settings) for model in models]
    ranked = [
        Ranked(place, references[at], [found[row] for found in shown], [found[at] for found in scores])
        for row, (at, place) in enumerate(places.items())
    ]
    means = [(BLEU4(found, references).score, sum(score) / len(score)) for found, score in zip(texts, scores)]
    return ExtremeCaptions([model.name for model in models], part, len(images), means, ranked)
