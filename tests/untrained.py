"""The run of any recipe of the user's own files, with the weights that it starts from: for tests of the verbs."""

import json
from dataclasses import replace
from pathlib import Path

from regard.recipes import RECIPES
from regard.training.prepare import prepare
from saved import save_run

ASKED = {
    "context": "a b c. b a.",
    "qas": [{"id": "1", "question": "a b?", "answers": [{"text": "b", "answer_start": 2}]}],
}
FILES = {
    "answer": json.dumps({"version": "1.1", "data": [{"title": "a", "paragraphs": [ASKED, ASKED]}]}),
    "choice": "0\ta b\tb\tc\n1\tb c\tc\ta\n",
    "classify": "good\ta b\nbad\tb c\n",
    "embed": "a b\tb\nb c\tc\n",
    "multilabel": "x|y\ta b\nx\tb c\n",
    "pair": "yes\ta b\tb\nno\tb c\tc\n",
    "pretrain": "a b c\nb c a\nc a b\n" * 9,
    "rate": "1\ta b\n2\tb c\n",
    "similarity": "1\ta b\tb\n3\tb c\tc\n",
    "tag": "a B-PER\nb O\n\nb O\nc B-PER\n",
    "word2vec": "a b c a b c\n" * 9,
}


def save_untrained(name: str, folder: Path) -> Path:
    """A run of the recipe of this name in a folder, on a few lines of text."""
    file = folder / f"{name}{'.json' if name == 'answer' else '.txt'}"
    file.write_text(FILES[name])
    recipe = RECIPES[name]()
    named = dict.fromkeys({"train", "valid"} & vars(recipe.data).keys(), str(file))
    prepared = prepare(replace(recipe, data=replace(recipe.data, **named)))
    return save_run(folder / name, prepared.recipe, prepared.config, prepared.fields)
