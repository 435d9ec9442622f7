"""Draws the diagrams of the documentation, docs/images/diagram-*.svg, light and dark. `make picture`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
# As files they follow the reader's system; within the site, docs/assets/site.css sets the same colours by its switch.
_STYLE = """
.diagram { --ink: #1b2230; --quiet: #5b6577; --card: #ffffff; --line: #8a94a6; --waits: #e3f1f8; --goes: #fdf1d8;
  --runs: #e6ebff; --ends: #fde6e7; --fine: #e0f4e8;
  font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
@media (prefers-color-scheme: dark) { .diagram { --ink: #e5e9f0; --quiet: #98a3b5; --card: #181e28; --line: #6b778c;
  --waits: #153243; --goes: #3a2e12; --runs: #232c52; --ends: #45191c; --fine: #15351f } }
.diagram text { fill: var(--ink); text-anchor: middle } .diagram .quiet { fill: var(--quiet); font-size: 12px }
.diagram .name { font-weight: 650 } .diagram rect { stroke: var(--line); stroke-width: 1.2; fill: var(--card) }
.diagram path { fill: none; stroke: var(--line); stroke-width: 1.6; marker-end: url(#tip) }
.diagram .tip { fill: var(--line); stroke: none }
.diagram .waits { fill: var(--waits) } .diagram .goes { fill: var(--goes) } .diagram .runs { fill: var(--runs) }
.diagram .ends { fill: var(--ends) } .diagram .fine { fill: var(--fine) }
"""


class Drawing:
    """An SVG, drawn in the order of the calls."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title = (width, height), title
        self._parts: list[str] = []

    def box(
        self, x: int, y: int, name: str, note: str = "", kind: str = "", width: int = 130, height: int = 56
    ) -> None:
        """A box with its centre there."""
        left, top = x - width // 2, y - height // 2
        self._parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="9"/>')
        self.text(x, y + (-2 if note else 5), name, "name")
        if note:
            self.text(x, y + 16, note, "quiet")

    def text(self, x: int, y: int, text: str, kind: str = "quiet") -> None:
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>')

    def arrow(self, path: str, text: str = "", at: tuple[int, int] = (0, 0)) -> None:
        self._parts.append(f'<path d="{path}"/>')
        if text:
            self.text(*at, text)

    def svg(self) -> str:
        width, height = self._size
        tip = (
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="tip" style="marker-end:none" d="M0 0L8 4L0 8z"/></marker>'
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(self._title)}">'
        )
        return "\n".join([head, f"<style>{_STYLE}</style><defs>{tip}</defs>", *self._parts, "</svg>\n"])


def life_of_a_job() -> Drawing:
    drawing = Drawing(860, 300, "The life of a job: delayed, ready, running, done or dead")
    drawing.text(50, 128, "enqueue")
    drawing.arrow("M20 140H113")
    drawing.box(180, 140, "delayed", "sorted set", "waits")
    drawing.arrow("M247 140H353", "when due", (300, 130))
    drawing.box(420, 140, "ready", "stream", "goes")
    drawing.arrow("M487 140H583", "claim", (535, 130))
    drawing.box(650, 140, "running", "handler", "runs")
    drawing.arrow("M717 140H765", "finish", (740, 130))
    drawing.box(805, 140, "done", "", "fine", 76)
    drawing.arrow("M650 110C640 20 190 20 181 110", "it failed: again after 15s, 3m, 10m, …", (415, 36))
    drawing.arrow("M610 170C580 205 480 205 446 170", "worker lost, or TTR passed", (528, 214))
    drawing.arrow("M662 170V241", "no step left", (704, 210))
    drawing.box(662, 270, "dead", "kept, with its error", "ends", 150, 52)
    drawing.arrow("M585 270C450 270 412 250 412 170", "kick", (500, 288))
    drawing.arrow("M180 170V241", "cancel", (204, 210))
    drawing.box(180, 270, "cancelled", "also when ready", "", 130, 52)
    return drawing


def processes() -> Drawing:
    drawing = Drawing(860, 330, "The processes around Redis")
    drawing.box(430, 160, "", "", "", 250, 250)
    drawing.text(430, 60, "Redis or Valkey", "name")
    drawing.box(430, 102, "delayed", "sorted sets", "waits", 170, 46)
    drawing.box(430, 162, "ready, running", "streams, consumer groups", "goes", 200, 46)
    drawing.box(430, 222, "progress, dead letters", "schedules, counters, history", "runs", 214, 46)
    drawing.text(430, 272, "every change is one atomic script")
    drawing.box(110, 66, "your programs", "Queue, AsyncQueue", "", 170)
    drawing.arrow("M196 66C250 66 262 92 303 104", "enqueue, cancel", (250, 56))
    drawing.box(110, 160, "any language", "HTTP: streamdq serve", "", 170)
    drawing.arrow("M196 160H303", "", (0, 0))
    drawing.box(110, 254, "your database", "streamdq outbox relay", "", 170)
    drawing.arrow("M196 254C250 254 270 226 303 212", "", (0, 0))
    drawing.box(745, 66, "workers", "handlers, and a mover", "runs", 190)
    drawing.arrow("M557 104C590 90 610 66 648 66", "claim", (602, 62))
    drawing.arrow("M648 84C610 88 590 110 557 122", "finish, move", (618, 122))
    drawing.box(745, 160, "exporter", "Prometheus, Grafana", "", 190)
    drawing.arrow("M557 160H648", "figures", (602, 152))
    drawing.box(745, 254, "dump, archive", "Parquet, SQL", "", 190)
    drawing.arrow("M557 212C590 226 610 254 648 254", "history", (622, 226))
    return drawing


def states() -> Drawing:
    drawing = Drawing(860, 330, "The states of a job, their keys in Redis, and the scripts between them")
    drawing.arrow("M20 150H103", "enqueue", (58, 140))
    drawing.box(180, 150, "delayed", "bucket: sorted set", "waits", 150)
    drawing.arrow("M257 150H343", "move", (299, 140))
    drawing.box(420, 150, "ready", "ready: stream", "goes", 150)
    drawing.arrow("M497 150H573", "claim", (534, 140))
    drawing.box(650, 150, "running", "pending entry", "runs", 150)
    drawing.arrow("M727 150H775", "finish", (750, 140))
    drawing.box(812, 150, "gone", "", "fine", 70)
    drawing.arrow("M660 120C650 10 190 10 180 120", "retry", (420, 32))
    drawing.arrow("M620 120C600 78 470 78 450 120", "release, reclaim, take_over", (508, 74))
    drawing.arrow("M650 180V261", "bury", (670, 226))
    drawing.box(650, 290, "dead", "dead:GROUP: sorted set", "ends", 180)
    drawing.arrow("M557 290C440 290 420 260 420 181", "kick", (466, 300))
    drawing.arrow("M180 180V261", "cancel", (204, 226))
    drawing.box(180, 290, "gone", "also from ready, before a start", "fine", 220)
    return drawing


DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "life-of-a-job": life_of_a_job,
    "processes": processes,
    "states": states,
}


def drawn(name: str) -> str:
    return DRAWINGS[name]().svg()


def main() -> None:
    for name in DRAWINGS:
        target = HERE / f"diagram-{name}.svg"
        target.write_text(drawn(name), encoding="utf-8")
        sys.stdout.write(f"{target.name}\n")


if __name__ == "__main__":
    main()
