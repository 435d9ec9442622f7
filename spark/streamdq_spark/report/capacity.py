"""The section about the workers that the coming hours need."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from .charts import Axis, Series, stacked
from .parts import OTHERS, Colours, Figure, Grid, Section, TableRow, Tables, figure, grid, grouped, has_groups, subject
from .pools import Pool, PoolHour, pools
from .todo import Advised
from .words import aim, counted, hour, number, span

MOST_TO_DO = 2


def capacity(tables: Tables, slo_ms: int, objective: float, colours: Colours) -> Section:
    section = Section(
        "capacity",
        "How many workers will it take?",
        f"Workers that the coming hours need, so that {aim(objective)} of the attempts start within {span(slo_ms)}.",
    )
    found = [pool for pool in pools(tables["capacity"]) if pool.busiest]
    if not found:
        section.lacking = (
            "This needs two complete weeks of history, or the jobs that wait in Redis, and attempts that ended in the "
            "last 14 days."
        )
        return section
    section.answer = " ".join(_in_words(pool) for pool in found[:3])
    section.calm = not any(pool.short for pool in found)
    section.brief = _in_brief(found)
    section.span = f"{len(found[0].hours)} hours from {hour(found[0].hours[0].hour)}"
    section.figures = [_by_hour(found, section.answer, colours)]
    section.grids = [_of_pools(found), _of_queues(tables["capacity"])]
    section.notes = [
        "Workers: the slots over 80 % of the handlers that one worker was seen to run at once.",
        "If a worker may run more at once, ask streamdq capacity --concurrency.",
        "Slots: attempts that have to run at once in the hour, by how they came in the same hours of the last 14 days.",
        "Topics that share workers are in one row. Low and high: by the forecast's band.",
    ]
    return section


def more_workers(tables: Tables) -> list[Advised]:
    """Pools that had fewer workers than the coming hours need."""
    return [_more(pool) for pool in pools(tables.get("capacity", ())) if pool.short][:MOST_TO_DO]


def _more(pool: Pool) -> Advised:
    busiest, first, last = max(pool.short, key=lambda one: one.workers or 0), pool.short[0], pool.short[-1]
    hours = len(pool.short)
    effect = (
        f"In {'one hour' if hours == 1 else f'{hours} hours'} from {hour(first.hour)} to {last.hour:%H:%M} more "
        f"jobs come due than these can start in time; the most in that from {busiest.hour:%H:%M} on, "
        f"{number(round(busiest.load or 0))} attempts."
    )
    note = f"Counted with {number(pool.concurrency)} handlers at once in each, as seen: more of them do as well."
    seen = number(ceil(pool.seen or 0))
    return Advised(pool.name, "Workers", seen, number(busiest.workers), effect, "", note, (0, -(busiest.workers or 0)))


def _in_brief(found: Sequence[Pool]) -> str:
    most = sum(pool.busiest.workers or 0 for pool in found if pool.busiest)
    seen = sum(ceil(pool.seen or 0) for pool in found)
    short = sum(bool(pool.short) for pool in found)
    pools = "" if len(found) == 1 else f" in {len(found)} pools"
    lacking = f" {short} of the pools had fewer than they need." if short and len(found) > 1 else ""
    return f"At most {counted(most, 'worker')}{pools}; {number(seen)} worked lately.{lacking}"


def _in_words(pool: Pool) -> str:
    busiest = pool.busiest
    assert busiest is not None
    seen = "" if pool.seen is None else f"; {number(pool.seen)} worked lately"
    return f"{pool.name}: at most {_range(busiest)}, from {hour(busiest.hour)} on{seen}."


def _range(one: PoolHour) -> str:
    many = counted(one.workers or 0, "worker")
    if one.workers_low == one.workers_high:
        return many
    return f"{many} ({number(one.workers_low)} to {number(one.workers_high)})"


def _by_hour(found: Sequence[Pool], text: str, colours: Colours) -> Figure:
    hours = [one.hour for one in found[0].hours]
    series = _of_each(found, colours)
    seen = sum(ceil(pool.seen or 0) for pool in found)
    title = "Workers needed, by hour"
    axis = Axis("workers")
    line = ("workers lately", [float(seen)] * len(hours)) if seen else None
    names = [f"{at:%H:%M}" for at in hours]
    return figure(title, lambda width: stacked(width, title, text, axis, names, series, line=line))


def _of_each(found: Sequence[Pool], colours: Colours) -> list[Series]:
    """A pool has the colour of one of its topics; those without are together."""
    series: list[Series] = []
    others = [0.0] * len(found[0].hours)
    taken = {OTHERS}
    for pool in found:
        own = next((style for style in map(colours.style, pool.topics) if style not in taken), OTHERS)
        values = [float(one.workers or 0) for one in pool.hours]
        if own == OTHERS:
            others = [sum(both) for both in zip(others, values, strict=True)]
        else:
            taken.add(own)
            series.append(Series(pool.name, values, own))
    if any(others):
        series.append(Series("all others" if series else "all", others, OTHERS))
    return series


def _of_pools(found: Sequence[Pool]) -> Grid:
    return grid(
        ["Topics", "Busiest hour", "Attempts in it", "Slots", "Workers", "Low", "High", "Lately", "At once each"],
        [
            [
                pool.name, hour(one.hour), number(round(one.load or 0)), number(one.slots), number(one.workers),
                number(one.workers_low), number(one.workers_high), number(pool.seen), number(pool.concurrency),
            ]
            for pool in found
            if (one := pool.busiest)
        ],
        texts=2,
    )  # fmt: skip


def _of_queues(rows: Sequence[TableRow]) -> Grid:
    groups = has_groups(rows)
    queues = [
        (own, max(own, key=lambda row: row["slots"])) for own in grouped(rows, "topic", "group").values()
        if all(row["slots"] is not None for row in own)
    ]  # fmt: skip
    queues.sort(key=lambda queue: -queue[1]["slots"])
    return grid(
        ["Topic", "Attempts, 24 hours", "Low", "High", "An attempt takes", "Most slots", "In the hour from"],
        [
            [
                subject(most, groups), *(number(round(sum(row[name] for row in own))) for name in _LOADS),
                span(most["attempt_ms"]), number(most["slots"]), f"{most['hour']:%H:%M}",
            ]
            for own, most in queues
        ],
    )  # fmt: skip


_LOADS = ("load", "load_low", "load_high")
