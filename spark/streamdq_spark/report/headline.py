"""The first lines: what the owner of a queue wants to know first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from .load import in_words, ranked
from .parts import TableRow, Tables, total
from .words import aim, counted, hour, number, percent, span

_MEASURES = {
    "late": "late starts",
    "failed": "failed attempts",
    "dead": "jobs given up",
    "lateness": "p99 lateness",
    "duration": "p95 run time",
}
MOST = 6


@dataclass(frozen=True, slots=True)
class Tile:
    """One large figure. `state`: good, bad, or nothing."""

    label: str
    value: str
    note: str
    state: str = ""


def tiles(tables: Tables, slo_ms: int, objective: float) -> list[Tile]:
    """The tiles whose tables exist."""
    made: list[Tile] = []
    if "time_to_finish" in tables:
        rows = [row for row in tables["time_to_finish"] if row["scope"] == "job"]
        made.append(Tile("Jobs done", number(total(rows, "jobs")), f"of {counted(len(rows), 'topic')}"))
    if "punctuality_topics" in tables:
        made.append(_on_time(tables["punctuality_topics"], slo_ms, objective))
    if "throughput" in tables:
        made += _failures(tables["throughput"], tables.get("dead_letters"))
    if again := total(tables.get("duplicates", ()), "done_again"):
        made.append(Tile("Done twice", number(again), "jobs that ended as done more than once", "bad"))
    return made


def _on_time(topics: Sequence[TableRow], slo_ms: int, objective: float) -> Tile:
    attempts, within = total(topics, "attempts"), total(topics, "within_slo")
    on_time = within / attempts if attempts else None
    state = "" if on_time is None else "good" if on_time >= objective else "bad"
    wanted = f"objective {aim(objective)}".replace(" ", "\N{NO-BREAK SPACE}")  # in one line of a narrow tile
    return Tile("On time", percent(on_time), f"within {span(slo_ms)}; {wanted}", state)


def _failures(rows: Sequence[TableRow], letters: Sequence[TableRow] | None) -> list[Tile]:
    """`letters`: the table of dead letters, which tells which were sent back; None: it was not made."""
    dead, failed = total(rows, "dead"), total(rows, "retry") + total(rows, "dead")
    ended = total(rows, "done") + failed
    share = percent(failed / ended if ended else None)
    kicked = total(letters or (), "kicked")
    note = f"given up, less {number(kicked)} sent back" if kicked else "given up" if dead else "none given up"
    return [
        Tile("Failed attempts", share, f"{number(failed)} of {number(ended)}"),
        Tile("Dead letters", number(dead - kicked), note, "bad" if dead > kicked else "good"),
    ]


def worse_and_better(tables: Tables) -> tuple[list[str], list[str], str]:
    """What changed from the seven days before to the last seven, or why nothing can be said."""
    if "changes" not in tables:
        return [], [], "This was not analysed."
    judged = [row for row in tables["changes"] if row["verdict"] != "too little"]
    if not judged:
        return [], [], "There is too little data in the last seven days, or in the seven before, to compare them."
    ranked = sorted(judged, key=_weight, reverse=True)
    worse = [_change(row) for row in ranked if row["verdict"] == "worse"]
    better = [_change(row) for row in ranked if row["verdict"] == "better"]
    return _most(worse), _most(better), ""


def unusual(tables: Tables) -> list[str]:
    """The incidents of the last seven days: failures and late starts first, then what was done; the largest first."""
    if not tables.get("incidents") or not tables.get("anomalies"):
        return []
    end = max(row["hour"] for row in tables["anomalies"])
    together: dict[tuple[datetime, str], list[TableRow]] = {}
    for row in ranked(tables):
        if (end - row["last_hour"]).days < 7:
            together.setdefault((row["first_hour"], in_words(row)), []).append(row)
    found = sorted(together.items(), key=lambda item: item[1][0]["measure"] == "done")
    return _most([_incidents(at, what, rows) for (at, what), rows in found])


def _incidents(at: datetime, what: str, found: list[TableRow]) -> str:
    """Topics that became unusual in the same hour and way, in one line."""
    topics, hours = [str(row["topic"]) for row in found], max(row["hours"] for row in found)
    where = topics[0] if len(topics) == 1 else f"{len(topics)} topics, {topics[0]} most"
    return f"{what}: {where}, {hour(at)}{f', {hours} hours' if hours > 1 else ''}"


def _weight(row: TableRow) -> float:
    """The factor by which it changed."""
    small = 1.0 if row["measure"] in ("lateness", "duration") else 0.0005
    high, low = max(row["before"], row["now"]), min(row["before"], row["now"])
    return float((high + small) / (low + small))


def _change(row: TableRow) -> str:
    show = span if row["measure"] in ("lateness", "duration") else percent
    return f"{row['topic']}: {_MEASURES[row['measure']]} {show(row['before'])} → {show(row['now'])}"


def _most(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MOST else [*lines[: MOST - 1], f"and {len(lines) - MOST + 1} more"]
