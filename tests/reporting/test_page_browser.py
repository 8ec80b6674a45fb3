"""The page in a real browser: turning pages, pointing, sliding, the keyboard, dark mode, and nothing off the disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from PIL import Image
from skimage import data

from datasieve.cli import main

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
    # Playwright leaves its event loop to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
NASTY = '"><img onerror=alert(1) src=x><script>alert(2)</script>'


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Pages of a faulty set, cats and cups under one name and many copies, and of its repaired copy."""
    base = tmp_path_factory.mktemp("browser")
    folder = base / "set" / "a thing"
    folder.mkdir(parents=True)
    for i in range(5):
        Image.fromarray(data.chelsea()[:, i * 25 : i * 25 + 320]).save(folder / f"cat {i} #1 100%? 'a' 🐈.jpg")
        Image.fromarray(data.coffee()[:, i * 30 : i * 30 + 420]).save(folder / f"cup{i}.jpg")
        (folder / f"cup{i}.txt").write_text(f"a cup {i}" if i else NASTY)
    for i in range(14):
        (folder / f"again{i:02}.jpg").write_bytes((folder / "cup0.jpg").read_bytes())
    turned = Image.fromarray(data.rocket())
    exif = turned.getexif()
    exif[274] = 6
    turned.save(folder / "turned.jpg", exif=exif)
    (folder / '"><img onerror=alert(1)>.jpg').write_bytes(b"<html><script>alert(3)</script></html>")
    assert main(["audit", str(base / "set"), "-q"]) == 0
    assert main(["fix", str(base / "set"), "-q"]) == 0
    return base / "set-report" / "index.html", base / "set-clean-report" / "index.html"


class Tab:
    """A tab that remembers what it was asked to load and what was complained of."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.goto(file.as_uri())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def tab(browser: Any, reports: tuple[Path, Path]) -> Iterator[Tab]:
    """The faulty set's page, light."""
    made = Tab(browser, reports[0], color_scheme="light")
    yield made
    made.context.close()


@pytest.fixture(scope="module")
def clean(browser: Any, reports: tuple[Path, Path]) -> Iterator[Tab]:
    """The repaired set's page, dark, on a phone."""
    made = Tab(browser, reports[1], color_scheme="dark", viewport={"width": 420, "height": 900})
    yield made
    made.context.close()


def pager(tab: Tab) -> Any:
    return tab.page.locator("#findings .pager[data-kind=pair]").first


def test_lists_are_turned_page_by_page_and_the_ends_are_ends(tab: Tab) -> None:
    turning = pager(tab)
    list_ = tab.page.locator(f"#{turning.get_attribute('data-list')}-list")
    back, following = turning.locator("button").all()
    assert turning.inner_text().split("\n")[1] == "1–6 of 14"
    first = list_.inner_text()
    assert back.is_disabled()
    following.click()
    turning.get_by_text("7–12 of 14").wait_for()
    assert list_.inner_text() != first
    assert list_.locator("li").count() == 6
    assert all(image.get_attribute("alt") for image in list_.locator("img:visible").all())
    following.click()
    turning.get_by_text("13–14 of 14").wait_for()
    assert list_.locator("li").count() == 2
    assert following.is_disabled()
    # The button that went off held the focus; the keyboard user is not thrown to the top of the page.
    assert back.evaluate("button => document.activeElement === button")
    back.press("Enter")
    turning.get_by_text("7–12 of 14").wait_for()
    back.press("Enter")
    turning.get_by_text("1–6 of 14").wait_for()
    assert list_.inner_text() == first


def test_pointing_at_a_mark_shows_its_picture_and_leaving_hides_it(tab: Tab) -> None:
    tip = tab.page.locator("#tip")
    for chart in ("#likeness [data-chart]", "#colours [data-chart]"):
        dot = tab.page.locator(f"{chart} .dot[data-thumb]").first
        dot.scroll_into_view_if_needed()
        # Scrolling hides the tip, and its event comes a frame later.
        tab.page.evaluate("() => new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")
        dot.hover(force=True)
        tip.locator("img").wait_for(state="visible")
        assert tip.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        assert tip.locator("b").inner_text().startswith("a thing/")
        box = tip.bounding_box()
        assert 0 <= box["x"] <= 1280 - box["width"]
        tab.page.mouse.move(2, 2)
        tip.wait_for(state="hidden")


def test_the_arrow_keys_walk_over_a_chart(tab: Tab) -> None:
    chart = tab.page.locator("#likeness [data-chart]")
    chart.focus()
    tip = tab.page.locator("#tip")
    tab.page.keyboard.press("ArrowRight")
    first = tip.locator("b").inner_text()
    tab.page.keyboard.press("ArrowRight")
    second = tip.locator("b").inner_text()
    assert first != second
    tab.page.keyboard.press("ArrowLeft")
    assert tip.locator("b").inner_text() == first
    assert chart.locator(".current").count() == 1
    tab.page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_everything_can_be_reached_with_the_tab_key(browser: Any, reports: tuple[Path, Path]) -> None:
    fresh = Tab(browser, reports[0])
    met = set()
    for _ in range(400):
        fresh.page.keyboard.press("Tab")
        here = fresh.page.evaluate(
            "() => { const a = document.activeElement;"
            " return a === document.body ? '' : a.className + '|' + a.tagName + '|' + (a.dataset.step ?? ''); }"
        )
        if not here:
            break
        met.add(here)
    assert "skip|A|" in met
    assert "|BUTTON|1" in met
    assert "chart wide|DIV|" in met
    assert "|SUMMARY|" in met
    outline = fresh.page.evaluate(
        "() => { const a = document.querySelector('.toc a'); a.focus({focusVisible: true});"
        " return getComputedStyle(a).outlineStyle; }"
    )
    assert outline == "solid"
    fresh.context.close()


def test_a_slider_uncovers_the_repaired_picture_also_by_key(clean: Tab) -> None:
    change = clean.page.locator(".change").first
    slider = change.locator("input[type=range]")
    slider.scroll_into_view_if_needed()
    assert change.locator("img:visible").count() == 2

    def cut() -> str:
        return str(change.locator("img.now").evaluate("image => getComputedStyle(image).clipPath"))

    assert "50%" in cut()
    slider.focus()
    clean.page.keyboard.press("ArrowRight")
    assert "51%" in cut()
    clean.page.keyboard.press("Home")
    assert "0px 0px 0px 0%" in cut()
    box = slider.bounding_box()
    clean.page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    assert float(cut().split()[-1].rstrip("%)")) > 80
    assert "upright" in change.inner_text()


def test_dark_mode_is_dark_and_light_mode_light(tab: Tab, clean: Tab) -> None:
    def brightness(one: Tab) -> float:
        colour = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(",")) / 3

    assert brightness(tab) > 230
    assert brightness(clean) < 40


def test_nothing_is_wider_than_a_phone(clean: Tab) -> None:
    assert clean.page.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_link_to_a_folded_note_opens_it(tab: Tab) -> None:
    note = tab.page.locator("details.notes article").first
    assert not note.is_visible()
    tab.page.evaluate("id => { location.hash = id; }", note.get_attribute("id"))
    note.wait_for(state="visible")


def test_links_reach_the_files_whatever_they_are_called(tab: Tab) -> None:
    links = {link for a in tab.page.locator("a.frame[href]").all() if (link := a.get_attribute("href"))}
    cats = [link for link in links if "cat" in link]
    assert cats
    for link in links:
        assert Path(unquote(urlparse(link).path)).is_file()
    opened = tab.context.new_page()
    opened.goto(cats[0])
    assert opened.evaluate("document.images[0].naturalWidth") == 320
    opened.close()


def test_what_comes_from_outside_shows_as_text(tab: Tab) -> None:
    assert NASTY in tab.page.locator("main").inner_text()
    assert tab.page.locator("main script").count() == 0
    assert tab.page.locator("[onerror]").count() == 0


@pytest.mark.parametrize("which", ["tab", "clean"])
def test_axe_finds_nothing_serious(which: str, request: pytest.FixtureRequest) -> None:
    one: Tab = request.getfixturevalue(which)
    one.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    found = axe.Axe().run(one.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]})
    bad = [v for v in found.response["violations"] if v["impact"] in ("serious", "critical")]
    assert not bad, [(v["id"], [node["html"] for node in v["nodes"]][:3]) for v in bad]


def test_without_scripts_every_list_shows_its_first_page(browser: Any, reports: tuple[Path, Path]) -> None:
    plain = Tab(browser, reports[0], java_script_enabled=False)
    assert plain.page.locator("#findings .pairs li").count() >= 6
    assert plain.page.locator(".pager:visible").count() == 0
    assert plain.page.locator("[data-chart] .dot title").count() > 0
    plain.context.close()


def test_a_page_without_its_data_says_so(browser: Any, reports: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copy(reports[0], tmp_path / "index.html")
    alone = Tab(browser, tmp_path / "index.html")
    turning = pager(alone)
    turning.locator("button").last.click()
    turning.get_by_text("is not beside this page").wait_for()
    alone.context.close()


def test_nothing_was_complained_of_and_nothing_came_from_off_the_disk(tab: Tab, clean: Tab) -> None:
    assert tab.complaints == []
    assert clean.complaints == []
    asked = tab.requests + clean.requests
    assert any("page-data/" in url for url in asked)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
