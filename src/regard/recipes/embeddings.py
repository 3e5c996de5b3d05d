"""Recipe for vectors of your own texts."""

from regard.data.related import RelatedPairs
from regard.models import BertConfig
from regard.objectives import Contrastive
from regard.recipes.recipe import Plan, Recipe


def embed() -> Recipe:
    """Vectors of texts, from pairs of texts that belong together (Reimers & Gurevych 2019): `data.train=FILE`.

    The file is a table with the columns `data.first` and `data.second`, or has first<TAB>second on each line.
    `from=DIR` starts from a model that was trained on other text, such as a public BERT or sentence-transformers model.
    `head.pool` is how states become one vector. With numbers for the validation pairs (`data.number`, `data.least`) the
    best step is the one whose cosines rank the pairs most as the numbers do.
    """
    return Recipe(
        name="embed",
        title="vectors of your own texts, from pairs that belong together",
        data=RelatedPairs(),
        model=BertConfig(segments=0, context=128, width=128, heads=4, layers=2),
        objective=Contrastive(),
        plan=Plan(
            steps=1000, batch_tokens=2048, rate=5e-4, warmup=100, schedule="linear", evaluate=100, select="spearman"
        ),
        metrics=("spearman", "accuracy"),
    )
