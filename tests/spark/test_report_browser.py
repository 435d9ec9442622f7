"""The report in Chromium, cut off from any network: wide and dark, and on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamdq.demo.simulated import simulate
from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.report import write_report
from tests.spark.logs import corners, random_log
from tests.spark.reports import hostile, report_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
SIZES = {"wide": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = random_log(seed=3, jobs=300) + [e for e in corners() if e.group]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_of(log[::3] + hostile(log[::9])))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # which every process of the suite would import

    with sync_playwright() as playwright:
        # As root, which containers are, it has no sandbox.
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture(
    params=[
        pytest.param(("phone", "dark"), id="phone-dark"),
        pytest.param(("wide", "light"), marks=pytest.mark.thorough, id="wide-light"),
    ]
)
def opened(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[tuple[Page, list[str]]]:
    """The page, and what it asked for or complained of."""
    size, scheme = request.param
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
    page = context.new_page()
    seen: list[str] = []
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("dialog", lambda dialog: seen.append(dialog.message))
    page.on("request", lambda asked: seen.append(asked.url))
    page.goto(report.as_uri())
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    yield page, [what for what in seen if what != report.as_uri()]
    context.close()


@pytest.mark.thorough
def test_it_shows_everything_within_the_window(opened: tuple[Page, list[str]]) -> None:
    page, complaints = opened
    assert complaints == [], "errors, dialogs, or requests for anything but the file"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "no scrolling sideways"
    charts = page.locator("svg:visible")
    assert charts.count() >= 9
    for box in (chart.bounding_box() for chart in charts.all()):
        assert box is not None
        assert box["width"] > 250
        assert 40 < box["height"] < 1500
    sizes = page.evaluate(
        """[...document.querySelectorAll('svg text')].filter(text => text.checkVisibility())
           .map(text => parseFloat(getComputedStyle(text).fontSize)
                * text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width)"""
    )
    assert min(sizes) >= 9.5, "labels that can be read"
    assert contrast(page) >= 4.5
    assert page.evaluate(CUT_OFF) == [], "labels within their chart, and texts within the window"
    if page.viewport_size == {"width": 1280, "height": 900}:
        assert page.evaluate(SIDEWAYS) == [], "tables as wide as their section"
    lines = page.evaluate(LINES_OF_A_NAME, "appointment.remind")
    assert len(lines) > 5
    assert set(lines) == {1}, "a usual name of a topic is not broken"


@pytest.mark.thorough
def test_a_quiet_week_is_three_screens(browser: Browser, tmp_path: Path) -> None:
    simulate(LocalFolder(tmp_path / "dump"), 5_000, 14, 4, quiet=True)
    last = date(2026, 1, 18)
    week = plan(str(tmp_path / "dump"), str(tmp_path / "tables"), last - timedelta(days=6), last)
    write_report(week.target, analyze(DuckDB(), week), tmp_path / "report.html")
    for width, height in SIZES.values():
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto((tmp_path / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * height


CUT_OFF = """() => {
    const within = (one, all) => one.left >= all.left - 1 && one.right <= all.right + 1
        && one.top >= all.top - 1 && one.bottom <= all.bottom + 1
    const box = element => element.getBoundingClientRect()
    const labels = [...document.querySelectorAll('svg text')].filter(text => text.checkVisibility())
        .filter(text => !within(box(text), box(text.ownerSVGElement)))
    const others = [...document.querySelectorAll('body *')]
        .filter(one => one.checkVisibility() && !one.closest('svg, .scroll'))
        .filter(one => box(one).right > innerWidth + 1 || (one.clientWidth && one.scrollWidth > one.clientWidth + 1))
    return [...labels, ...others].map(one => one.textContent.trim().slice(0, 60))
}"""


SIDEWAYS = """() => [...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1)
    .map(one => one.getAttribute('aria-label'))"""


LINES_OF_A_NAME = """name => [...document.querySelectorAll('tr:first-child > td.t:first-child')]
    .filter(cell => cell.checkVisibility())
    .map(cell => {
        cell.textContent = name
        const range = document.createRange()
        range.selectNodeContents(cell)
        return new Set([...range.getClientRects()].map(rect => rect.top)).size
    })"""


def contrast(page: Page) -> float:
    """Between text and card, by WCAG's formula."""
    ink, card = (
        [int(part) for part in page.evaluate(script).removeprefix("rgb(").removesuffix(")").split(",")]
        for script in (
            "getComputedStyle(document.querySelector('.question')).color",
            "getComputedStyle(document.querySelector('.cards')).backgroundColor",
        )
    )

    def light(colour: list[int]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(ink), light(card)))
    return (high + 0.05) / (low + 0.05)
