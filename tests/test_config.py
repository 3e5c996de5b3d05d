"""Settings, JSON and the shown tree of frozen dataclasses."""

import json
import string
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import LARGEST, Table, format_value, from_json, override, to_json, tree
from regard.errors import UserError


@dataclass(frozen=True)
class Tower:
    width: int = 64  # how wide it stands
    heads: int = 4
    score: Literal["dot", "general"] = "dot"

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise UserError(f"width={self.width} is not a multiple of heads={self.heads}.")


@dataclass(frozen=True)
class Bridge:
    span: int
    arches: tuple[int, ...] = (1, 2)
    tower: Tower | None = None


@dataclass(frozen=True)
class Plan:
    steps: int = 100
    rate: float = 1e-3  # per step  # and per row
    minutes: float | None = None
    quiet: bool = False
    languages: tuple[str, ...] = ("en",)
    betas: tuple[float, float] = (
        0.9,
        0.98,
    )  # the two averages
    # any remark,
    # on two lines
    note: str = ""
    size: int | Literal["auto"] = "auto"


@dataclass(frozen=True)
class Work:
    model: Tower | Bridge = Tower()
    plan: Plan = Plan()


KINDS = {"model": {"tower": Tower, "bridge": Bridge}, "node": {"work": Work, "plan": Plan}}


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("steps=400", "steps", 400),
        ("steps=1_000", "steps", 1000),
        ("steps=1e3", "steps", 1000),
        ("steps=-2", "steps", -2),
        ("rate=3e-4", "rate", 3e-4),
        ("rate=2", "rate", 2.0),
        ("minutes=none", "minutes", None),
        ("minutes=2.5", "minutes", 2.5),
        ("quiet=yes", "quiet", True),
        ("quiet=False", "quiet", False),
        ("quiet=1", "quiet", True),
        ("languages=en,fr", "languages", ("en", "fr")),
        ("languages=", "languages", ()),
        ("betas=0.8, 0.9", "betas", (0.8, 0.9)),
        ("note=a=b, c", "note", "a=b, c"),
        ("size=auto", "size", "auto"),
        ("size=12", "size", 12),
    ],
)
def test_a_setting_takes_its_fields_type(setting: str, field: str, value: Any) -> None:
    found = getattr(override(Work(), [f"plan.{setting}"], KINDS).plan, field)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("plan.steps=abc", "a whole number"),
        ("plan.steps=1.5", "a whole number"),
        ("plan.steps=1e300", "a whole number"),
        ("plan.steps=inf", "a whole number"),
        ("plan.steps=", "a whole number"),
        ("plan.rate=nan", "a finite number"),
        ("plan.rate=1e999", "a finite number"),
        ("plan.minutes=soon", "a finite number or none"),
        ("plan.quiet=maybe", "true or false"),
        ("plan.betas=0.9", "2 values separated by commas, each a finite number"),
        ("plan.size=big", "a whole number or auto"),
    ],
)
def test_a_bad_value_is_refused_with_setting_value_and_type(setting: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        override(Work(), [setting], KINDS)
    assert str(error.value) == f"{setting}: expected {expected}"


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**400])
def test_a_whole_number_of_more_than_64_bits_is_refused(value: int) -> None:
    with pytest.raises(UserError, match=r"^plan\.steps=-?\d+: no whole number above 2\*\*63-1 can be computed with"):
        override(Work(), [f"plan.steps={value}"], KINDS)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("plan.step=3", ["plan.step=3", '"plan.steps"']),
        ("modle.width=3", ["modle.width=3", '"model"']),
        ("model.span=3", ["model.span=3", "model."]),  # a bridge's field, but this is a tower
        ("plan.steps.more=3", ["plan.steps", "no settings inside"]),
        ("model.score=genral", ["model.score=genral", '"general"']),
        ("model.score=7", ["model.score=7", "dot, general"]),
        ("model=tour", ["model=tour", '"tower"']),
        ("model=plan", ["model=plan", "bridge, tower"]),  # a kind, but not one that stands there
        ("plan.steps", ["plan.steps", "name=value"]),
        ("=3", ["no such setting"]),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(setting: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        override(Work(), [setting], KINDS)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_a_node_replaced_keeps_nothing_and_settings_apply_in_order() -> None:
    work = override(Work(), ["model=bridge", "model.span=7", "model.span=8"], KINDS)
    assert work == Work(model=Bridge(span=8))
    assert override(work, ["model=tower"], KINDS) == Work()


def test_a_node_is_chosen_before_what_is_said_of_its_inside() -> None:
    said = ["model.span=7", "model.tower.width=8", "model.span=8", "model.tower=tower", "model=bridge"]
    assert override(Work(), said, KINDS) == Work(model=Bridge(span=8, tower=Tower(width=8)))
    with pytest.raises(UserError, match=r"model\.width=128: no such setting"):  # which a bridge has not
        override(Work(), ["model.width=128", "model=bridge", "model.span=7"], KINDS)


def test_a_needed_value_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"model\.span: needs a value"):
        override(Work(), ["model=bridge"], KINDS)


def test_an_optional_node_comes_and_goes() -> None:
    work = Work(model=Bridge(span=1))
    with pytest.raises(UserError, match=r"choose a kind first: model\.tower=tower"):
        override(work, ["model.tower.width=8"], KINDS)
    grown = override(work, ["model.tower=tower", "model.tower.width=8"], KINDS)
    assert grown == Work(model=Bridge(span=1, tower=Tower(width=8)))
    assert override(grown, ["model.tower=none"], KINDS) == work


def test_settings_are_checked_together_not_one_by_one() -> None:
    assert override(Work(), ["model.heads=7", "model.width=21"], KINDS).model == Tower(width=21, heads=7)
    with pytest.raises(UserError, match="width=64 is not a multiple of heads=7"):
        override(Work(), ["model.heads=7"], KINDS)


def test_override_leaves_the_original_alone() -> None:
    work = Work()
    assert override(work, [], KINDS) == work
    override(work, ["plan.steps=3"], KINDS)
    assert work == Work()


towers = st.builds(lambda heads, each, score: Tower(heads * each, heads, score),
                   st.integers(1, 8), st.integers(1, 8), st.sampled_from(["dot", "general"]))  # fmt: skip
numbers = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-LARGEST, LARGEST)
bridges = st.builds(Bridge, integers, st.lists(integers).map(tuple), st.none() | towers)
plans = st.builds(
    Plan,
    integers,
    numbers,
    st.none() | numbers,
    st.booleans(),
    st.lists(st.text()).map(tuple),
    st.tuples(numbers, numbers),
    st.text(),
    integers | st.just("auto"),
)


@given(st.builds(Work, towers | bridges, plans))
def test_json_brings_back_the_same_tree(work: Work) -> None:
    back = from_json(json.loads(json.dumps(to_json(work, KINDS), allow_nan=False)), KINDS)
    assert back == work
    assert repr(back) == repr(work)  # the types too: tuples are tuples, 1.0 is not 1


words = st.text(string.ascii_letters, min_size=1).filter(lambda word: word.lower() != "none")


@given(integers, numbers, st.none() | numbers, st.booleans(), st.lists(words).map(tuple))
def test_a_printed_leaf_is_read_back(
    steps: int, rate: float, minutes: float | None, quiet: bool, languages: Any
) -> None:
    plan = replace(Plan(), steps=steps, rate=rate, minutes=minutes, quiet=quiet, languages=languages)
    shown = {
        "steps": steps,
        "rate": repr(rate),
        "minutes": minutes,
        "quiet": quiet,
        "languages": ",".join(languages),
    }
    assert override(Plan(), [f"{name}={value}" for name, value in shown.items()], KINDS) == plan


def changed(path: str, value: Any) -> dict[str, Any]:
    obj = to_json(Work(model=Bridge(span=3)), KINDS)
    node = obj
    *steps, last = path.split(".")
    for step in steps:
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return obj


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kind", "wrok", "kind: expected the name of a kind, found 'wrok'. Did you mean \"work\"?"),
        ("model.kind", ..., "model.kind: expected the name of a kind, found None. Known: bridge, tower."),
        ("model.kind", ["bridge"], "model.kind: expected the name of a kind, found ['bridge']."),
        ("model.kind", "plan", "model.kind: expected the name of a kind, found 'plan'."),
        ("plan", None, "plan: expected Plan, found None."),
        ("plan.stps", 3, 'plan.stps: no such setting. Did you mean "plan.steps"?'),
        ("model", {"kind": "bridge"}, "model.span: missing; it should be a whole number."),
        ("plan.steps", True, "plan.steps: expected a whole number, found True."),
        ("plan.steps", 2.0, "plan.steps: expected a whole number, found 2.0."),
        ("plan.steps", 10**400, "plan.steps: expected a whole number, found 1000"),
        ("plan.rate", "fast", "plan.rate: expected a finite number, found 'fast'."),
        ("plan.rate", float("nan"), "plan.rate: expected a finite number, found nan."),
        ("plan.rate", 10**400, "plan.rate: expected a finite number, found 1000"),
        ("plan.quiet", 0, "plan.quiet: expected true or false, found 0."),
        ("plan.note", None, "plan.note: expected text, found None."),
        ("plan.languages", "en", "plan.languages: expected a list of values"),
        ("plan.languages", ["en", 3], "plan.languages: expected text, found 3."),
        ("plan.betas", [0.9], "plan.betas: expected 2 values"),
        ("model.tower", "tower", "model.tower: expected Tower or none, found 'tower'."),
    ],
)
def test_wrong_json_is_refused_by_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        from_json(changed(path, value), KINDS)
    assert str(error.value).startswith(message), str(error.value)


@pytest.mark.parametrize("path", ["plan.steps", "plan.languages", "model.tower", "plan"])
def test_what_is_missing_has_its_default(path: str) -> None:
    """A setting that came later: a file from before it is still read."""
    assert from_json(changed(path, ...), KINDS) == Work(model=Bridge(span=3))


@pytest.mark.parametrize("obj", [None, [], "work", 3, {}])
def test_json_that_is_no_tree_is_refused(obj: Any) -> None:
    with pytest.raises(UserError, match="kind: expected the name of a kind"):
        from_json(obj, KINDS)


def test_a_dataclass_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match="Tower: has no name in the tables of kinds"):
        to_json(Work(), {"node": {"work": Work, "plan": Plan}})


def test_the_tree_is_shown_with_types_and_comments() -> None:
    rows = {row.name: row for row in tree(Work())}
    assert list(rows)[:4] == ["model.width", "model.heads", "model.score", "plan.steps"]
    assert rows["model.width"] == ("model.width", 64, "a whole number", "how wide it stands", ())
    assert rows["model.heads"].comment == ""
    assert rows["model.score"].type == "one of dot, general"
    assert rows["model.score"].choices == ("dot", "general")
    assert rows["plan.rate"].comment == "per step  # and per row"
    assert rows["plan.minutes"].type == "a finite number or none"
    assert rows["plan.betas"].comment == "the two averages"
    assert rows["plan.note"].comment == "any remark, on two lines"  # the lines above the field
    assert rows["plan.size"].comment == ""


def test_the_tree_is_shown_without_source() -> None:
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Bare:\n    width: int = 3  # lost\n", space)
    assert tree(space["Bare"]()) == [("width", 3, "a whole number", "", ())]


def test_a_name_that_stands_in_a_part_is_found_there() -> None:
    with pytest.raises(UserError, match=r'^steps=3: no such setting\. Did you mean "plan\.steps"\?'):
        override(Work(), ["steps=3"], KINDS)
    with pytest.raises(UserError, match=r'Did you mean "model\.note" or "plan\.note"\?'):
        override(Signed(), ["note=3"], {**KINDS, "notes": {"noted": Noted}})


def test_a_value_is_written_as_it_is_read() -> None:
    for setting in ("plan.quiet=true", "plan.minutes=none", "plan.betas=0.5,0.25", "plan.languages=", "plan.steps=7"):
        name, _, value = setting.partition("=")
        field = name.removeprefix("plan.")
        assert format_value(getattr(override(Work(), [setting], KINDS).plan, field)) == value


@dataclass(frozen=True)
class Noted:
    note: str = ""


@dataclass(frozen=True)
class Signed:
    model: Noted = Noted()
    plan: Plan = Plan()


@dataclass(frozen=True)
class Spire(Tower):
    """Inherits settings, restates one, adds one."""

    heads: int = 2  # one on either side
    bells: int = 3


@dataclass(frozen=True)
class Town:
    model: Tower | Spire | Bridge = Tower()
    note: str = "plain"


TOWN = {
    "node": {"town": Town},
    "model": {"tower": Tower, "spire": Spire, "bridge": Bridge, "giralda": Spire(width=32, bells=25)},
}


def test_comments_of_inherited_settings_are_found() -> None:
    comments = {setting.name: setting.comment for setting in tree(Spire())}
    assert comments == {"width": "how wide it stands", "heads": "one on either side", "score": "", "bells": ""}


def test_a_name_may_stand_for_a_node_that_is_filled_in() -> None:
    made = override(Town(), ["model=giralda", "model.bells=24"], TOWN)
    assert made.model == Spire(width=32, bells=24)
    assert override(Town(), ["model=spire"], TOWN).model == Spire()
    with pytest.raises(UserError, match='Did you mean "giralda"'):
        override(Town(), ["model=giraldo"], TOWN)
    with pytest.raises(UserError, match="note has no settings inside; write note=VALUE"):
        override(Town(), ["note.x=1"], TOWN)


def test_json_names_the_class_of_a_node_not_what_it_started_from() -> None:
    made = override(Town(), ["model=giralda"], TOWN)
    stored = to_json(made, TOWN)
    assert stored["model"]["kind"] == "spire"
    assert from_json(stored, TOWN) == made
    with pytest.raises(UserError, match=r"model\.kind"):
        from_json({"kind": "town", "model": {"kind": "giralda"}}, TOWN)


# -- Parts that are named by a table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A part may be anything that the table of models names."""

    model: Annotated[Any, Table("model")] = Tower()
    again: Annotated[Any, Table("other")] = Tower(width=4)


SITE = {"node": {"site": Site}, "model": TOWN["model"], "other": {"tower": Tower, "plan": Plan}}


def test_a_part_is_chosen_from_its_own_table() -> None:
    made = override(Site(), ["model=giralda", "model.bells=24", "again=plan", "again.steps=7"], SITE)
    assert made == Site(Spire(width=32, bells=24), Plan(steps=7))
    assert from_json(json.loads(json.dumps(to_json(made, SITE))), SITE) == made
    for setting in ("model=plan", "model=site", "again=spire", "model=7"):
        with pytest.raises(UserError, match=f"^{setting}: "):
            override(Site(), [setting], SITE)
    with pytest.raises(UserError, match="model=towr: "):
        override(Site(), ["model=towr"], SITE)
    with pytest.raises(UserError, match=r"model\.kind: expected the name of a kind, found 'plan'"):
        from_json({**to_json(made, SITE), "model": to_json(Plan(), SITE)}, SITE)
    types = {setting.name: setting.type for setting in tree(Site())}
    assert types["model.width"] == "a whole number"


def test_the_root_of_a_tree_may_have_to_be_of_one_table() -> None:
    stored = to_json(Tower(width=8), SITE)
    assert from_json(stored, SITE, "model") == from_json(stored, SITE) == Tower(width=8)
    with pytest.raises(UserError, match="kind: expected the name of a kind, found 'site'"):
        from_json(to_json(Site(), SITE), SITE, "model")
