"""`regard doctor`: is a model sound?"""

from typing import Annotated

import typer

from regard.cli import options
from regard.cli.console import FAILURE, SafeConsole
from regard.cli.lines import print_line
from regard.errors import UserError


def doctor(
    run: options.Run,
    data: Annotated[
        str | None, typer.Option(help="A file for the tokenizer and the training steps, instead of the recipe's data.")
    ] = None,
    json: options.Json = False,
    download: options.Download = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Check a model: leaks through masks and padding, caching, padding in the loss, gradients, saving, resuming, beams.

    Thirteen checks on a copy of the model, with small random texts, on the CPU. Each passes, fails or does not apply,
    and has the size of its error. The exit code is 1 if one fails. docs/doctor.md describes the checks, and how to run
    them on a module of your own.

    \b
    Examples:
      regard doctor runs/dates
      regard doctor runs/translate --data pairs.tsv
      regard doctor hf:openai-community/gpt2 --json
    """
    from regard.checks import FAILED, PASSED, findings_table, refused
    from regard.checks import doctor as examine
    from regard.pretrained import is_public
    from regard.render.terminal import table_text
    from regard.training.folder import is_run

    try:
        model = options.opened(run, "cpu", "float32", "error", download, allow_pickle)
    except UserError as error:
        if not is_run(run) and not is_public(run):
            raise
        findings = refused(error)
    else:
        findings = examine(model, data=data)
    failed = [each.check for each in findings if each.status == FAILED]
    if json:
        print_line({"run": run, "failed": failed, "checks": findings})
    else:
        passed = sum(each.status == PASSED for each in findings)
        rest = len(findings) - passed - len(failed)
        title = f"{run}: {passed} checks passed, {len(failed)} failed, {rest} do not apply"
        SafeConsole().print(table_text(findings_table(title, findings)))
    if failed:
        raise typer.Exit(FAILURE)
