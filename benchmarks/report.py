"""``python -m benchmarks.report``: how long the report is, and how it looks, on four histories: a quiet week, a week
with an incident, the demo's hour, and 10,000 topics. ``--keep DIR`` keeps the pages, with pictures. Needs a Chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from playwright.sync_api import Browser, FloatRect, sync_playwright
from rich.console import Console

from streamdq.demo.simulated import START_MS, simulate
from streamdq.dump.local import LocalFolder
from streamdq.terminal import table

SCREENS = {"wide": (1280, 800), "phone": (390, 844)}
MOST_SCREENS = 3
DAYS, SEED = 35, 4
TOPICS = 10_000
DAY_MS = 86_400_000
INCIDENT_MS = START_MS + 31 * DAY_MS + 10 * 3_600_000
INCIDENT_LASTS_MS, LATE_MS = 3 * 3_600_000, 90_000
PICTURE = 2400  # pixels; higher ones can't be seen as a whole


@dataclass(frozen=True, slots=True)
class Seen:
    """A page on a screen of some size. `sideways`: it is wider than that."""

    screens: float
    sideways: bool


def quiet_week(dump: Path) -> None:
    simulate(LocalFolder(dump), 100_000, DAYS, SEED, quiet=True)


def incident(dump: Path) -> None:
    """On a Thursday, from ten to one, order.close starts late and payment.notify fails."""

    def change(rows: pa.Table) -> pa.Table:
        ended = pc.cast(pc.cast(rows["finished"], pa.timestamp("ms", "UTC")), pa.int64())
        during = pc.and_(pc.greater_equal(ended, INCIDENT_MS), pc.less(ended, INCIDENT_MS + INCIDENT_LASTS_MS))
        late = pc.and_(during, pc.equal(rows["topic"], "order.close"))
        fails = pc.and_(pc.and_(during, pc.equal(rows["topic"], "payment.notify")), pc.equal(rows["event"], "done"))
        earlier = pc.subtract(rows["due"], pa.scalar(LATE_MS * 1000, pa.duration("us")))
        changed = {
            "due": pc.if_else(late, earlier, rows["due"]),
            "event": pc.if_else(fails, "retry", rows["event"]),
            "error": pc.if_else(fails, "ServiceUnavailable", rows["error"]),
        }
        for name, values in changed.items():
            field = rows.schema.field(name)
            rows = rows.set_column(rows.schema.get_field_index(name), field, values.cast(field.type))
        return rows

    simulate(LocalFolder(dump), 100_000, DAYS, SEED, quiet=True, change=change)


def many_topics(dump: Path) -> None:
    """A topic of a shop's kind for each of many tenants: a few have most of the jobs."""

    def change(rows: pa.Table) -> pa.Table:
        number = pc.cast(pc.utf8_slice_codeunits(rows["id"], 4), pa.int64())
        part = pc.divide(pc.cast(pc.bit_wise_and(pc.multiply(number, 7919), 0xFFFF), pa.float64()), 65536.0)
        tenant = pc.cast(pc.floor(pc.multiply(pc.power(part, 2.5), TOPICS / 6)), pa.int64())
        names = pc.binary_join_element_wise(rows["topic"], pc.cast(tenant, pa.string()), ".tenant-")
        field = rows.schema.field("topic")
        return rows.set_column(rows.schema.get_field_index("topic"), field, names.cast(field.type))

    simulate(LocalFolder(dump), 1_000_000, DAYS, SEED, quiet=True, change=change)


def demo(dump: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "streamdq", "demo", "--report", "--json"], check=True, capture_output=True, text=True
    )
    folder = Path(json.loads(made.stdout)["report"]).parent
    shutil.copytree(folder / "dump", dump)
    shutil.rmtree(folder)


SCENES: dict[str, Callable[[Path], None]] = {
    "quiet week": quiet_week,
    "incident": incident,
    "demo": demo,
    "10,000 topics": many_topics,
}


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def look_at(browser: Browser, page: Path, size: str, *, pictures: bool) -> Seen:
    width, height = SCREENS[size]
    shown = browser.new_page(viewport={"width": width, "height": height})
    shown.goto(page.as_uri())
    whole = shown.evaluate("document.documentElement.scrollHeight")
    sideways = shown.evaluate("document.documentElement.scrollWidth") > width
    for number, top in enumerate(range(0, whole, PICTURE) if pictures else ()):
        clip = FloatRect(x=0, y=top, width=width, height=min(PICTURE, whole - top))
        shown.screenshot(path=page.with_suffix(f".{size}.{number}.png"), full_page=True, clip=clip)
    shown.close()
    return Seen(whole / height, sideways)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--keep", type=Path, help="a folder for pages and pictures")
    parser.add_argument("--only", choices=list(SCENES), help="one of the histories")
    asked = parser.parse_args()
    columns = ("seconds", "kB", *(f"screens, {size}" for size in SCREENS))
    made = table("history", *columns, numbers=columns, title="the report")
    good = True
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in [asked.only] if asked.only else SCENES:
            dump, page = Path(scratch) / name, folder / f"{name.replace(' ', '-')}.html"
            SCENES[name](dump)
            begun = time.perf_counter()
            command = [sys.executable, "-m", "streamdq", "report", str(dump), "--out", str(page)]
            subprocess.run(command, check=True, capture_output=True)
            took_s = time.perf_counter() - begun
            seen = [look_at(browser, page, size, pictures=asked.keep is not None) for size in SCREENS]
            screens = [f"{one.screens:.1f}{' (sideways)' if one.sideways else ''}" for one in seen]
            made.add_row(name, f"{took_s:.1f}", f"{page.stat().st_size / 1000:,.0f}", *screens)
            good &= not any(one.sideways for one in seen)
            if name == "quiet week":
                good &= all(one.screens <= MOST_SCREENS for one in seen)
    Console(width=100).print(made)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
