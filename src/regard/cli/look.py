"""`regard look`: the attention of one text, in the terminal or as a file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options
from regard.cli.caption import print_captions
from regard.cli.console import SafeConsole, many, notice
from regard.cli.lines import UnknownCounter, print_line
from regard.cli.look_heads import print_ablation, print_ranking
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.render import AttentionView
    from regard.verbs import Loaded


TextOrImage = Annotated[str, typer.Argument(metavar="TEXT", help="The input of the model; for a captioner, an image.")]
Second = Annotated[
    str | None, typer.Argument(metavar="SECOND", help="For a model of pairs or choices: the second text, or a choice.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", callback=options.writable_file, help="Write .html (all of it), .svg or .npz."),
]
Target = Annotated[str | None, typer.Option(help="Predict this target instead of the model's own.")]
Part = Annotated[
    str | None,
    typer.Option(help="encoder (source to source), decoder (target to earlier target), cross (target to source)."),
]
Layer = Annotated[int | None, typer.Option(min=0, help="One layer of the part, from 0, the lowest.")]
Head = Annotated[int | None, typer.Option(min=0, help="One head of the layer, from 0; else the mean.")]
Lines = Annotated[bool, typer.Option("--lines", help="In .svg: two columns joined by lines.")]
Data = Annotated[
    Path | None, typer.Option(help="For model=kim, instead of TEXT: the strongest n-grams in the texts of a file.")
]
Top = Annotated[
    int | None, typer.Option(min=1, help="With --data: how many n-grams of each filter are shown. Default: 5.")
]
Off = Annotated[
    list[str] | None,
    typer.Option(
        "--off",
        metavar="HEAD",
        help="Switch a head off: L1H2 (layer 1, head 2, from 0), cross:L1H2 …; L1H2=uniform, =one-hot or =3 (all the "
        "weight on key 3) change it instead. May be given several times.",
    ),
]
RankHeads = Annotated[
    bool, typer.Option("--rank-heads", help="Switch each head off alone, and rank all by the damage to the answer.")
]


def look(
    run: options.Run,
    text: TextOrImage = "",
    second: Second = None,
    out: Out = None,
    target: Target = None,
    beam: options.Beam = 1,
    part: Part = None,
    layer: Layer = None,
    head: Head = None,
    lines: Lines = False,
    data: Data = None,
    top: Top = None,
    off: Off = None,
    rank_heads: RankHeads = False,
    json: options.Json = False,
    long: options.Long = "error",
    *,
    opening: options.Opening,
) -> None:
    """Show the attention weights of a model: a row is a token that attends, a column one that it attends to.

    A language model's row is the piece just read: it attends to itself and to the pieces before, and predicts the next
    one. Only where a translator attends to its source (cross), a row is the piece that is predicted. The special tokens
    of a model are added and shown: <bos> or GPT-2's <|endoftext|> before a text, BERT's [CLS] and [SEP] around it. A
    piece that is not in the vocabulary is shown as it was written, with a ring; in the terminal, in (brackets).

    Kim's network (model=kim) has filters instead of attention: the rows are the filters with the largest effect on the
    answer, a token is as dark as the strongest n-gram that has it, and a table has the n-gram that won each filter's
    maximum. With --data FILE (lines, label<TAB>text, or a table with the column of the texts), a table has the
    strongest n-grams of each filter over all its texts.

    Of a classifier, a model that rates, and a tagger, the prediction is shown too: the class with its probability and
    those of the next ones, the number, the tag of each word.

    A model of pairs (regard train pair or similarity) reads TEXT and SECOND as one text; a model of choices reads a
    context and one choice.

    Of a model with many layers and heads the terminal shows a mean of heads: where a target looks at its source, those
    of the layer that aligns best, else those of all layers; --part, --layer and --head choose. The HTML is one file
    that opens offline with all of them, as matrices and as lines: exact numbers on hover, and the arrow keys step
    through decoding (state, weights, context, the likeliest pieces). Cells that the mask hides are hatched. The page of
    a model of up to 5 million parameters has the model in it: edit the text there, and it answers.

    --off HEAD answers the text without a head, and compares. Δ log p of a token is the natural logarithm of its
    probability without the head, minus that with it: 0 is no effect, -0.69 half the probability. Both are computed for
    the original answer: the target of a translator (its end included), the tokens of a text of a language model, the
    tokens at the masks of a masked model (without a mask each token, hidden in turn), the class or the tags. Off means
    weights of 0; uniform, equal weights on all keys that the head may look at; one-hot, all the weight on the key that
    has the most. With -o the picture is that of the changed model. --rank-heads sorts all heads by the sum of Δ log p.

    \b
    Examples:
      regard look runs/dates "3 février 2021"
      regard look runs/dates "3 février 2021" -o look.html
      regard look runs/dates "3 février 2021" --target 2021-02-03 -o look.svg
      regard look runs/multi30k "A dog runs." --part cross --layer 2 --head 0
      regard look runs/multi30k "A dog runs." --off L2H0 --off encoder:L0H1=uniform
      regard look runs/multi30k "A dog runs." --rank-heads
      regard look runs/shakespeare "to be or not to be" -o look.html
      regard look runs/scenes scene.png -o look.html
      regard look runs/opinions "not worth the money"
      regard look runs/opinions --data reviews.txt --top 8
      regard look runs/similar "A man is asleep." "Somebody sleeps."
      regard look hf:google-bert/bert-base-uncased "The dog barked." --layer 3 --download
    """
    from regard import verbs
    from regard.decode import Penalty
    from regard.verbs.living import computes
    from regard.verbs.search import Search

    if lines and (out is None or out.suffix.lower() != ".svg"):
        raise UserError("--lines: is for pictures, -o look.svg; a page, -o look.html, has lines and matrices.")
    if top is not None and data is None:
        raise UserError(f"--top {top}: is the number of n-grams from --data FILE; add that, or leave it out.")
    model = opening.open(run, long)
    changed = {"--off": off, "--rank-heads": rank_heads or None}
    chosen = {"--part": part, "--layer": layer, "--head": head, "--lines": lines or None}
    if model.reads_images:
        _refuse(f"{run}: a captioner has one attention", {**chosen, **changed, "--data": data})
        if not text:
            raise UserError(f"{run}: a captioner looks at an image; for example: regard look {run} scene.png")
        print_captions(model, [Path(text)], Search(beam, 1, Penalty(1.0), None), target, out, json)
        return
    if model.joined_text is None and second is not None:
        raise UserError(f"{second!r:.60}: {model.kind} reads one text; leave the second one out.")
    given = text if second is None else (text, second)
    if model.module.config.filter_sizes:
        _refuse(
            f"{run}: has filters and no attention",
            {**chosen, **changed, "--target": target, "--beam": beam > 1 or None},
        )
        if data is None:
            _look_filters(model, given, out, json)
        elif text or out is not None:
            raise UserError(f"--data {data}: is printed as a table of n-grams; leave out TEXT and -o.")
        else:
            _print_ngrams(model, data, top or 5, json)
        return
    _refuse(f"{run}: {model.kind} without filters over n-grams", {"--data": data})
    if model.source_tokenizer is None:
        _refuse(f"{run}: {model.kind}, which reads the text and searches for none", {"--beam": beam > 1 or None})
    view: AttentionView | None = None
    # A page that computes has all parts and layers, and opens on those that are chosen.
    whole = out is not None and out.suffix.lower() == ".html" and computes(model)
    recorded = (None, None) if whole else (part, layer)
    if rank_heads:
        wrong = {**chosen, "--off": off, "--out": out, "--target": target, "--beam": beam > 1 or None}
        _refuse("--rank-heads switches each head off alone, and prints a table", wrong)
        print_ranking(model, given, json)
    elif off:
        _refuse("--off compares answers of the model's own", {"--target": target})
        if out is None:
            _refuse("--off prints a comparison; with -o FILE it draws the changed model, too", chosen)
        print_ablation(model, given, off, beam, json)
        view = None if out is None else verbs.look_ablated(model, given, off, beam, *recorded)
    else:
        view = verbs.look(model, given, target, beam, *recorded)
    unknown = UnknownCounter()
    unknown.count(model.tokenizer, model.tokenizer.encode_batch([f"{text} {second or ''}"]), [1])
    unknown.report()
    if view is None:
        return
    if not view.layers and out is not None and out.suffix.lower() != ".html":
        raise UserError(f"{run}: no attention to write to {out}; a page, -o look.html, shows how it decodes.")
    if view.origin is not None:
        view = replace(view, origin=replace(view.origin, run=str(run)))
    if whole and view.layers:
        view = view.opening(part, layer, head)
    elif head is not None and view.layers:
        view = view.only(head=head)
    _show_attention(view, out, lines, json and not off)


def _refuse(why: str, given: dict[str, Any]) -> None:
    """Refuse the options that have a value."""
    if names := [name for name, value in given.items() if value is not None]:
        raise UserError(f"{why}; leave out {' and '.join(names)}.")


def _print_ngrams(model: "Loaded", data: Path, top: int, json: bool) -> None:
    """Print the strongest n-grams of each filter over the texts of a file."""
    from regard.data.files import iterate_lines
    from regard.data.tables import has_names, read_table
    from regard.render.terminal import sections_text
    from regard.verbs.filters import ngram_table, strongest_ngrams

    columns = {"text": model.recipe.data.text if model.recipe else ""}
    if has_names(data, columns):
        texts = [row["text"] for _, row in read_table(data, columns)]
    else:
        texts = [line.partition("\t")[2] or line for line in iterate_lines(data)]  # label<TAB>text, or a text
    found = strongest_ngrams(model, [text for text in texts if text.strip()], top)
    sizes = model.module.config.filter_sizes
    if not json:
        SafeConsole().print(sections_text([ngram_table(found, sizes)]))
        return
    for number, ngrams in enumerate(found):
        strongest = [{"ngram": one.text, "feature": one.feature} for one in ngrams]
        print_line({"filter": number, "size": sizes[number], "ngrams": strongest})


def _look_filters(model: "Loaded", text: str | tuple[str, str], out: Path | None, json: bool) -> None:
    """Show the n-grams that won the filters in a text, in the terminal or as a file."""
    from regard.render.terminal import sections_text
    from regard.verbs.filters import look_filters

    view = look_filters(model, text)
    if json:
        print_line(view.to_json())
    elif out is None:
        SafeConsole().print(view.show(), "", sections_text([view.table()]))
    if out is not None:
        view.save(out)
        notice(f"wrote {out}")


def _show_attention(view: "AttentionView", out: Path | None, lines: bool, json: bool) -> None:
    """Show the attention of a text, in the terminal or as a file."""
    from regard.file_io import write_file

    if json:
        print_line(_object(view))
    elif out is None:
        SafeConsole().print(view.text())
        if choices := _choices(view):
            SafeConsole(stderr=True).print(choices, style="dim", highlight=False, markup=False)
    if out is None:
        return
    if lines:
        write_file(out, view.lines())
    else:
        view.save(out)
    notice(f"wrote {out}")


def _choices(view: "AttentionView") -> str:
    """What else there is to be seen, where there is more than the one matrix shown."""
    if len(view.layers) < 2 and all(layer.heads == 1 for layer in view.layers):
        return ""
    parts = [
        f"{part or 'in all'}: {many(len(layers), 'layer', 'layers')} of {many(layers[0].heads, 'head', 'heads')}"
        for part, layers in view.parts.items()
    ]
    return f"{' · '.join(parts)}; choose with --part, --layer, --head, or see all with -o look.html"


def _object(view: "AttentionView") -> dict[str, Any]:
    """The weights by module, and the axes of every part, with the indices of tokens that are not in the vocabulary."""
    from regard.render.view_data import Unknown, places_of

    axes: dict[str, dict[str, Any]] = {}
    for part, (first, *_) in view.parts.items():
        sides = {"rows": first.rows or (), "columns": first.columns or ()}
        unknown = {f"unknown_{side}": places_of(Unknown, pieces) for side, pieces in sides.items()}
        axes[part or "all"] = sides | unknown
    return {
        "title": view.title,
        "rows": view.rows,
        "columns": view.columns,
        "layers": {layer.name: layer.weights for layer in view.layers},
        "parts": {layer.name: layer.part for layer in view.layers},
        "axes": axes,
        **({"answer": view.answer.numbers} if view.answer else {}),
    }
