"""The table of faults (`python tests/faults.py`) fits the code: each fault can still be put in, at one place."""

from edits import ROOT, NoSuchPlace, Sources
from faults import FAULTS


def test_every_fault_fits_the_code_at_one_place() -> None:
    sources, wrong = Sources(), []
    for each in FAULTS:
        try:
            source, text = sources.edited(each.where, each.old, each.new)
            wrong += [each.name] if text == source.text else []
        except NoSuchPlace as error:
            wrong.append(f"{each.name}: {error}")
    assert wrong == []
    tests = {one.partition("::")[0] for each in FAULTS for one in each.tests.split() if not one.startswith("-")}
    assert [one for one in sorted(tests) if one.endswith(".py") and not (ROOT / "tests" / one).is_file()] == []
