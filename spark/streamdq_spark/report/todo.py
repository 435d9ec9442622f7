"""What to do first: each advice as today's value, the proposed one, what it would have changed, and the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from streamdq.config import TopicSettings
from streamdq.job.retry import RetrySchedule
from streamdq.times.durations import show_ms

from .parts import TableRow, Tables, grouped, total
from .words import number, percent, span

Settings = Mapping[str, TopicSettings]
UNKNOWN = "not known"
_RAISE = "Raise it if it is less."
_OVER_P999 = 0.001
_SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Advised:
    """One setting of a topic to change. `command` is empty where too little is known of the new value, or of today's;
    `note` says what the command does not reach. `order`: the most urgent is the least.
    """

    topic: str
    setting: str
    today: str
    proposed: str
    effect: str
    command: str
    note: str
    order: tuple[int, int]


def advised(tables: Tables, settings: Settings | None) -> list[Advised]:
    """What should be set otherwise, the most urgent first: attempts that were cut off, then retries that don't help,
    then TTRs. `settings`: today's, of the topics, where Redis was asked; what they already say is no advice.
    Where today's TTR is not known, another one is only advised if attempts were cut off.

    Settings are a topic's, so its groups are looked at together: the longest TTR, and the most retry steps, that any
    of them needs. If too little was seen of one, there is none.
    """
    known = settings or {}
    steps_of = grouped(tables.get("retries", ()), "topic")
    found = []
    for topic, rows in grouped(tables.get("advice", ()), "topic").items():
        steps = steps_of.get(topic, [])
        made = (_retry(topic, rows, steps, known.get(topic)), _ttr(topic, rows, known.get(topic)))
        found += [one for one in made if one is not None]
    return sorted(found, key=lambda one: (one.order, one.topic))


def _retry(topic: str, rows: list[TableRow], steps: list[TableRow], today: TopicSettings | None) -> Advised | None:
    needs_most = _needs_most(rows)
    if needs_most is None:
        return None
    keep = needs_most["keep_steps"]
    now = _seen(needs_most, steps) if today is None else today.retry_of(needs_most["group"] or "").steps_ms
    if len(now) <= keep:
        return None
    new, ending = now[:keep], now[keep:]
    complete = None not in new
    dropped = [row for row in steps if row["step"] > keep]
    own = _with_their_own(rows, today, "retry")
    return Advised(
        topic,
        "Retry schedule",
        _schedule(now) + ("" if today else " (as seen)"),
        _schedule(new) if complete else f"its first {'step' if keep == 1 else f'{keep} steps'}",
        _retry_effect(dropped, ending),
        _configure(topic, "--retry", _schedule(new)) if complete else "",
        _of_handlers(own),
        (1, -total(dropped, "attempts")),
    )


def _needs_most(rows: list[TableRow]) -> TableRow | None:
    """Of groups that could all do with fewer steps, the one that needs the most of them."""
    retried = [row for row in rows if row["retry_verdict"] != "no retries"]
    if not retried or any(row["retry_verdict"] != "shorten" for row in retried):
        return None
    return max(retried, key=lambda row: row["keep_steps"])


def _seen(advice: TableRow, steps: Sequence[TableRow]) -> tuple[int | None, ...]:
    """The group's schedule as it was observed; None: a step, or its wait, was not."""
    waits = {row["step"]: row["wait_ms"] for row in steps if row["group"] == advice["group"] and row["step"]}
    if not waits:
        return tuple(_as_set(ms) for ms in advice["waits_ms"])
    return tuple(_as_set(waits.get(step)) for step in range(1, max(waits) + 1))


def _as_set(ms: float | None) -> int | None:
    """The wait as somebody may have set it: one that was observed is some milliseconds off."""
    if ms is None:
        return None
    return round(ms) if ms < _SECOND_MS else round(ms / _SECOND_MS) * _SECOND_MS


def _schedule(steps_ms: Sequence[int | None]) -> str:
    return " ".join("?" if ms is None else str(RetrySchedule((ms,))) for ms in steps_ms) or "none"


def _retry_effect(dropped: Sequence[TableRow], ending_ms: Sequence[int | None]) -> str:
    """`dropped`: the steps that would go, as far as they were seen. `ending_ms`: their waits."""
    said = []
    if dropped:
        tries, done = total(dropped, "attempts"), total(dropped, "done")
        lost = (
            f"{number(done)} of them succeeded, and these jobs would have been given up" if done else "none succeeded"
        )
        said.append(f"{number(tries)} attempts would have been saved; {lost}.")
    waits = [ms for ms in ending_ms if ms is not None]
    if waits:
        said.append(f"Jobs that fail permanently are given up {span(sum(waits))} sooner.")
    return " ".join(said)


def _ttr(topic: str, rows: list[TableRow], today: TopicSettings | None) -> Advised | None:
    if any(row["ttr_ms"] is None for row in rows):
        return None
    longest = max(rows, key=lambda row: row["ttr_ms"])
    new = longest["ttr_ms"]
    now = None if today is None else today.ttr_of(longest["group"] or "")
    cut_off = any(row["ttr_verdict"] == "cut off" for row in rows)
    if not _is_advice(now, new, cut_off=cut_off):
        return None
    shown, command, note = UNKNOWN, "", _RAISE
    if now is not None:
        shown, command = span(now), _configure(topic, "--ttr", show_ms(new))
        note = _of_handlers(_with_their_own(rows, today, "ttr_ms"))
    at_least, order, urgent = ("at least ", 0, "cut_off") if cut_off else ("", 2, "done")
    effect = _ttr_effect(rows, now, new, cut_off=cut_off)
    return Advised(topic, "TTR", shown, f"{at_least}{span(new)}", effect, command, note, (order, -total(rows, urgent)))


def _is_advice(now: int | None, new: int, *, cut_off: bool) -> bool:
    if now is None:
        return cut_off
    return now != new and not (cut_off and new < now)  # a lower bound is no reason for less


def _ttr_effect(rows: Sequence[TableRow], now: int | None, new: int, *, cut_off: bool) -> str:
    done, longest = total(rows, "done"), max(row["max_ms"] for row in rows)
    if cut_off:
        cut = total(rows, "cut_off")
        share = percent(max(row["share_cut_off"] for row in rows))
        several = "" if len(rows) == 1 else " in its worst group"
        said = f"{number(cut)} attempts ({share}{several}) were cut off or taken over; with more time they may be done."
    elif longest <= new:
        said = f"None of {number(done)} successful attempts took longer; the longest took {span(longest)}."
    else:
        over = sum(ceil((row["done"] - 1) * _OVER_P999) for row in rows)
        said = f"At most {number(over)} of {number(done)} successful attempts took longer, up to {span(longest)}."
    if now is None or new > now:
        return said
    return f"{said} A handler that hangs is ended after {span(new)}, not {span(now)}."


def _with_their_own(rows: Sequence[TableRow], today: TopicSettings | None, setting: str) -> list[str]:
    """The groups that have this setting from their handlers, which goes before the topic's."""
    if today is None:
        return []
    groups = {row["group"] for row in rows}
    return [name for name, own in today.groups.items() if name in groups and getattr(own, setting) is not None]


def _of_handlers(groups: Sequence[str]) -> str:
    if not groups:
        return ""
    which = f"Group {groups[0]} has its" if len(groups) == 1 else f"Groups {', '.join(groups)} have their"
    return f"{which} own, which goes before the topic's: change it at the handler, too."


def _configure(topic: str, option: str, value: str) -> str:
    quoted = shlex.quote(value)
    if topic.startswith("-"):
        return f"streamdq topic configure {option} {quoted} -- {shlex.quote(topic)}"
    return f"streamdq topic configure {shlex.quote(topic)} {option} {quoted}"
