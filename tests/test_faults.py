"""The table of faults (`python tests/faults.py`) fits the code: each fault can still be put in, at one place."""

from faults import FAULTS, ROOT


def test_every_fault_fits_the_code_at_one_place() -> None:
    files = {each.file for each in FAULTS}
    texts = {file: (ROOT / "src/regard" / file).read_text(encoding="utf-8") for file in files}
    assert [each.name for each in FAULTS if texts[each.file].count(each.old) != 1] == []
    tests = {one.partition("::")[0] for each in FAULTS for one in each.tests.split() if not one.startswith("-")}
    assert [one for one in sorted(tests) if one.endswith(".py") and not (ROOT / "tests" / one).is_file()] == []
