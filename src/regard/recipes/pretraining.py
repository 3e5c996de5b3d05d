"""The recipe `pretrain`: a model learns from a text alone, and the family of the model decides how."""

from regard.data.streams import Book
from regard.models import BertConfig
from regard.objectives import MaskedTokens
from regard.recipes.recipe import Plan, Recipe

# By the name of the model: the settings of `pretrain` that follow from it. Settings that the user states win. Those of
# the model itself are for this very name; the others are also for the published sizes (roberta-base).
FAMILIES: dict[str, tuple[str, ...]] = {
    "bert": (
        "model.neighbours=true",
        "model.context=128",
        "model.outputs=masked,pooled,next",
        "objective=masked",
        "objective.sentences=next",
        "metrics=perplexity,sentences",
    ),
    "roberta": ("model.neighbours=true", "objective=masked", "metrics=perplexity"),
    "albert": (
        "model.neighbours=true",
        "model.initial=none",  # embeddings that are projected learn slowly with small weights
        "objective=masked",
        "objective.sentences=order",
        "metrics=perplexity,sentences",
    ),
    "electra": (
        "model.neighbours=true",
        "model.initial=none",
        "objective=replaced",
        "metrics=accuracy,replaced_precision,replaced_recall",
    ),
    "t5": ("objective=spans", "data.window=128", "metrics=perplexity"),
    "gpt": ("model.context=128", "objective=teacher", "metrics=perplexity"),
    "transformer-xl": ("objective=teacher", "data.order=contiguous", "data.window=128", "metrics=perplexity"),
    "lstm": ("objective=teacher", "data.order=contiguous", "data.window=128", "metrics=perplexity"),
    "masked-lstm": ("objective=masked", "data.window=128", "metrics=perplexity"),
}


def pretrain() -> Recipe:
    """Pre-train a model from a text file of any size: `data.train=FILE model=bert`, or another family.

    What is hidden and predicted follows from the model: bert masks tokens and asks for the next sentence, roberta masks
    alone, albert asks for the order of sentences; electra tells which tokens a small generator replaced; t5 generates
    hidden spans; gpt, transformer-xl and lstm predict the next token. `data=lines` reads each line as a text of its
    own, `data.tokenizer=DIR` takes the tokenizer of a run or of a public checkpoint. `regard show pretrain model=bert
    --example` pictures an example.
    """
    return Recipe(
        name="pretrain",
        title="pre-train BERT, RoBERTa, ALBERT, ELECTRA, T5, GPT or Transformer-XL from a text of your own",
        data=Book(tokens="bpe"),
        model=BertConfig(context=128, outputs=("masked", "pooled", "next"), neighbours=True),
        objective=MaskedTokens(sentences="next"),
        plan=Plan(steps=10_000, batch_tokens=8192, rate=5e-4, warmup=0.1, schedule="linear", evaluate=500),
        metrics=("perplexity", "sentences"),
    )
