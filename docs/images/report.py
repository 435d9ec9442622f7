"""Takes the picture of the analytics, docs/images/report.webp: the first screen of a report on eight weeks of made-up
history. Needs a Chromium. `make picture`.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from streamdq.demo.simulated import simulate
from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.report import write_report

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("report.webp")
_EVENTS, _DAYS, _SEED = 100_000, 56, 4
_SHOWN = 7  # the last days of them; those before are what they are compared with
_WIDTH, _HEIGHT, _MARGIN = 1060, 1500, 24
_LAST_SHOWN = "#causes"
# Chromium takes pictures as PNG, and draws them as WebP.
_AS_WEBP = """async png => {
    const picture = await createImageBitmap(await (await fetch(png)).blob())
    const canvas = Object.assign(document.createElement('canvas'), {width: picture.width, height: picture.height})
    canvas.getContext('2d').drawImage(picture, 0, 0)
    return canvas.toDataURL('image/webp', 0.9)
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        _report(Path(directory), page)
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            PICTURE.write_bytes(_picture(browser, page))
            browser.close()
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")


def _report(folder: Path, page: Path) -> None:
    simulate(LocalFolder(folder / "dump"), _EVENTS, _DAYS, _SEED)
    whole = plan(str(folder / "dump"), str(folder / "tables"))
    first = whole.last_day - timedelta(days=_SHOWN - 1)
    summary = analyze(DuckDB(), plan(str(folder / "dump"), str(folder / "tables"), first, whole.last_day))
    write_report(LocalFolder(folder / "tables"), summary, page)


def _picture(browser: Browser, page: Path) -> bytes:
    shown = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
    shown.goto(page.as_uri())
    last = shown.locator(_LAST_SHOWN).bounding_box()
    assert last is not None
    height = last["y"] + last["height"] + _MARGIN
    png = base64.b64encode(
        shown.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": _WIDTH, "height": height})
    ).decode()
    drawn: str = browser.new_page().evaluate(_AS_WEBP, f"data:image/png;base64,{png}")
    return base64.b64decode(drawn.partition(",")[2])


if __name__ == "__main__":
    main()
