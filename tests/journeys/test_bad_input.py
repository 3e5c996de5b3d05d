"""What a page makes of odd texts, names, addresses and browsers: an answer or a message, and never an error."""

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from user import User

from regard import look, translate
from regard.cli import main
from regard.verbs import Loaded, living

DATE = "3 février 2021"
ODD = {
    "family": "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 2021",
    "right to left": "3 בפברואר 2021 \u202e٢٠٢١",
    "control": "3\x07 f\x1b[31m\x7f\u2028\u200b 2021",
    "html": "<img src=x onerror=alert(1)></script>&amp;",
    "formulas": "=1+1 @ -2",
    "one letter": "3",
}
LONG = "3 février 2021 " * 666 + "0123456789"
HOSTILE = "<img src=x onerror=alert(3)>"
Pages, Models, Users = Callable[..., str], Callable[[str], Loaded], Callable[..., User]


def check_no_markup(page: Any) -> None:
    """No text of a page became an element."""
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("[...document.scripts].every((one) => !one.textContent.startsWith('alert'))")


@pytest.mark.parametrize("name", ODD)
def test_an_odd_text_is_drawn_edited_and_answered(name: str, page_of: Pages, model_of: Models, used: Users) -> None:
    text, model = ODD[name], model_of("dates")
    (expected,) = translate(model, [text])
    user = used(page_of("dates", text))
    user.answered(expected.text)
    count = user.page.locator(".matrix thead th").count()
    assert count == len(look(model, text).columns)
    check_no_markup(user.page)
    other = used(page_of("dates", DATE))
    other.page.fill(".edit-view input", text)  # a line break is no letter of a box
    (typed,) = translate(model, [other.page.input_value(".edit-view input")])
    other.answered(typed.text)
    check_no_markup(other.page)
    assert other.page.locator(".edit-view .trouble").is_hidden()


def test_an_empty_text_has_a_message(page_of: Pages, used: Users, capsys: pytest.CaptureFixture[str]) -> None:
    user = used(page_of("dates", DATE))
    user.answered("2021-02-03")
    for empty in ("", "  "):
        user.page.fill(".edit-view input", empty)
        user.page.wait_for_function("() => document.querySelector('.edit-view .trouble').textContent.includes('empty')")
    assert user.page.text_content(".edit-view output") == "2021-02-03"
    user.page.fill(".edit-view input", "1/2/1999")
    user.page.wait_for_function("() => document.querySelector('.edit-view .trouble').hidden")
    capsys.readouterr()
    assert main(["look", "dates", "", "-o", "empty.html"]) != 0
    assert capsys.readouterr().err.strip()
    assert not Path("empty.html").exists()


def test_ten_thousand_letters(page_of: Pages, used: Users) -> None:
    assert len(LONG) == 10_000
    user = used(page_of("dates", DATE))
    user.page.fill(".edit-view input", LONG)
    user.page.wait_for_selector(".edit-view :is(.notes, .trouble):visible")
    assert user.fits
    user.page.fill(".edit-view input", "1/2/1999")  # the page still answers
    user.page.wait_for_function("() => /^(19|20)99-/.test(document.querySelector('.edit-view output').textContent)")
    if main(["look", "dates", LONG, "-o", "long.html"]) == 0:
        made = used(Path("long.html").read_text(encoding="utf-8"))
        made.page.wait_for_selector(".matrix")
        made.page.wait_for_function("() => document.querySelector('.edit-view output').textContent !== ''")


@pytest.mark.parametrize("name", [HOSTILE, "</script><script>alert(4)</script>", 'it\'s "a" $(run) `x`'])
def test_a_run_with_a_hostile_name(name: str, used: Users) -> None:
    run = Path("runs") / name
    if not run.exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree("runs/transformer", run)
    assert main(["look", str(run), HOSTILE + " </script>", "--target", HOSTILE, "-o", "hostile.html"]) == 0
    html = Path("hostile.html").read_text(encoding="utf-8")
    Path("hostile.html").unlink()
    assert "<img" not in html
    user = used(html)
    user.page.wait_for_selector(".matrix")
    check_no_markup(user.page)
    for view in user.page.locator("[role=tab]:visible").all():
        view.click()
        check_no_markup(user.page)
    user.page.get_by_role("button", name="Python", exact=True).press("Enter")
    assert repr(str(run)) in user.page.text_content(".exports .code")


def test_cells_of_a_spreadsheet_are_no_formulas(page_of: Pages, used: Users) -> None:
    user = used(page_of("dates", "=1+1 @ -2"))
    with user.page.expect_download() as waiting:
        user.page.get_by_role("button", name="CSV", exact=True).press("Enter")
    lines = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8-sig"))))
    names = [*lines[0], *(line[0] for line in lines)]
    assert {"'=", "'+", "'@", "'-"} <= set(names)
    assert not any(name[:1] in {"=", "+", "-", "@"} for name in names)


def test_a_model_without_attention(page_of: Pages, model_of: Models, used: Users) -> None:
    user = used(page_of("dates-plain", DATE))
    assert user.page.locator("[data-view=off]:visible").count() == 0
    user.edit("March 14, 1998")
    user.answered(translate(model_of("dates-plain"), ["March 14, 1998"])[0].text)


def test_a_model_that_is_too_large_is_a_picture(model_of: Models, used: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(living, "MOST_PARAMETERS", 1000)
    user = used(look(model_of("dates"), DATE).html())
    assert "does not compute: 221,711 parameters" in user.page.inner_text("main")
    assert user.page.locator(".edit-view:visible, [data-view=off]:visible, [data-view=cell]:visible").count() == 0
    user.press("ArrowRight")
    assert user.page.text_content(".count") == "Step 2 of 11"


def test_data_of_another_version(page_of: Pages, used: Users) -> None:
    html = page_of("dates", DATE)
    assert html.count('{"version":1,') == 1
    user = used(html.replace('{"version":1,', '{"version":99,'))
    assert "data of version 99, and its script draws version 1" in user.page.text_content("[role=alert]")
    assert user.page.locator("[data-figure] svg").is_visible()  # the picture without scripts


NO_WORKER = {
    "policy": {"policy": "worker-src 'none'", "said": "Content Security Policy"},
    "none": {"before": "delete window.Worker;"},
    "refuses": {
        "before": "window.Worker = class { constructor() { throw new DOMException('no', 'SecurityError'); } };"
    },
    "broken": {
        "before": "window.Blob = class extends Blob { constructor() { super(['}{'], {type: 'text/javascript'}); } };"
    },
}


@pytest.mark.parametrize("name", NO_WORKER)
def test_a_browser_without_workers_shows_a_picture_and_says_so(name: str, page_of: Pages, used: Users) -> None:
    more = dict(NO_WORKER[name])
    html = page_of("dates", DATE)
    assert "worker-src blob:" in html
    user = used(html.replace("worker-src blob:", more.pop("policy", "worker-src blob:")), **more)
    user.page.wait_for_function("() => document.querySelector('main').innerText.includes('this browser')")
    assert user.page.locator(".matrix [role=gridcell]").count() == 11 * 14
    user.press("ArrowRight")
    assert user.page.text_content(".count") == "Step 2 of 11"
    if user.page.locator(".edit-view:visible").count():  # what one edits has the same message, and no end of waiting
        user.edit("1/2/1999")
        user.page.wait_for_function("() => document.querySelector('.edit-view').getAttribute('aria-busy') !== 'true'")
    assert user.page.locator(".matrix [role=gridcell]").count() == 11 * 14


ADDRESSES = (
    "%E0%A4%A&view=__proto__&panel=constructor&part=x&layer=-7&heads=9,NaN,&step=1e9&scale=?&<img src=x onerror=a()>",
    "ask=null",
    'ask={"text":5,"second":[],"target":{}}',
    'ask={"heads":"off"}&panel=off',
    'ask={"heads":[null,5,{},{"part":"cross","layer":9,"head":9,"kind":"?"}]}&panel=off',
    'ask={"hidden":5,"forced":"x"}&panel=fill',
    'ask={"forced":[1e9,-1,0.5,null]}&panel=next',
    'ask={"masks":5}&panel=masks',
    'ask={"masks":{"columns":"x","window":-1}}&panel=masks',
    'ask={"cell":5,"score":"cosine"}&panel=cell&cell.row=1e9&cell.column=x',
    'ask={"beam":1e9,"limit":1e9,"top":-1}',
    "view=grid&grid.with=L9·H9&grid.order=x&panel=next&next.t=-1&next.k=x&next.p=9",
)


@pytest.mark.parametrize("run", ["dates", "runs/gpt"])
def test_a_garbage_address_opens_the_page(run: str, page_of: Pages, used: Users) -> None:
    html = page_of(run, DATE if run == "dates" else "the dog sees a house .")
    user = used(html)
    place = user.page.url
    for address in ADDRESSES:
        user.page.goto("about:blank")
        user.page.goto(f"{place}#{quote(address, safe='=&%{}[]:,')}")
        user.page.wait_for_selector(".look [role=gridcell]:visible")
        user.page.wait_for_selector(".edit-view :is(output:not(:empty), .trouble:not([hidden]))")
        check_no_markup(user.page)
    assert re.search(r"\d|\w", user.page.text_content("h2 .label"))
