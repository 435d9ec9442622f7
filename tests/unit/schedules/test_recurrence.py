"""Occurrences where clocks are changed, against a walk over every minute; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest

from streamdq.errors import InvalidInput
from streamdq.schedules.civil import after_quiet, moments, quiet_hours, zone
from streamdq.schedules.recurrence import Cron, Every, cron

BEGIN, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
AROUND, THREE_DAYS = timedelta(hours=8), timedelta(days=3)
PARIS = zone("Europe/Paris")

# Cron expressions, and the hours and minutes that they name: read by hand, as the walk must not use the same parser.
EXPRESSIONS = {
    "30 2 * * *": ({2}, {30}),
    "0 0 * * *": ({0}, {0}),
    "59 23 * * *": ({23}, {59}),
    "*/20 * * * *": (set(range(24)), {0, 20, 40}),
    "15,45 0-3 * * *": ({0, 1, 2, 3}, {15, 45}),
}

Change = tuple[datetime, timedelta, timedelta]  # the first hour with the new offset; the old and the new offset


@cache
def changes_of(where: ZoneInfo) -> tuple[Change, ...]:
    """All of ten years, to the hour. No zone changes its clocks and back within three days."""

    def offset(at: datetime) -> timedelta:
        return at.astimezone(where).utcoffset() or timedelta()

    days = [BEGIN + i * THREE_DAYS for i in range((END - BEGIN) // THREE_DAYS + 1)]
    found = []
    for begin, end in pairwise(days):
        if offset(begin) != offset(end):
            hours = [begin + i * HOUR for i in range(73)]
            found += [(new, offset(old), offset(new)) for old, new in pairwise(hours) if offset(old) != offset(new)]
    return tuple(found)


def distinct_changes() -> Iterator[tuple[ZoneInfo, Change]]:
    """Each change of each zone; of zones that do the same, one."""
    known = set()
    for name in sorted(available_timezones()):
        where = ZoneInfo(name)
        for change in changes_of(where):
            if change not in known:
                known.add(change)
                yield where, change


def walked(where: ZoneInfo, change: Change) -> dict[str, tuple[list[int], list[int]]]:
    """For each expression the moments around the change, with times that come twice once, and twice."""
    start, minutes = change[0] - AROUND, int(2 * AROUND / MINUTE)
    shown = [(start + i * MINUTE).astimezone(where).replace(tzinfo=None) for i in range(-1, minutes)]
    found: dict[str, tuple[list[int], list[int]]] = {}
    for expression, (hours, of_hour) in EXPRESSIONS.items():
        once: list[int] = []
        both: list[int] = []
        seen = set()
        for i, (before, local) in enumerate(pairwise(shown)):
            skipped = [before + step * MINUTE for step in range(1, int((local - before) / MINUTE))]
            if any(time.hour in hours and time.minute in of_hour for time in (*skipped, local)):
                ms = int((start + i * MINUTE).timestamp()) * 1000
                both.append(ms)
                if local not in seen:
                    once.append(ms)
            seen.add(local)
        found[expression] = once, both
    return found


@pytest.mark.thorough
def test_all_zones_and_all_changes_of_ten_years() -> None:
    tried = set()
    for where, change in distinct_changes():
        begin, end = (int((change[0] + side * AROUND).timestamp()) * 1000 for side in (-1, 1))
        for expression, (once, both) in walked(where, change).items():
            for dst, expected in (("once", once), ("both", both)):
                recurrence = Cron(expression, where, dst)  # type: ignore[arg-type]
                assert until(recurrence, begin - 1, end) == expected, (where, change, recurrence)
                # A process that starts in between plans no others.
                middle = len(expected) // 2
                for at in expected[middle : middle + 1]:
                    assert until(recurrence, at, end) == expected[middle + 1 :], (where, change, recurrence)
        tried.add("forward" if change[2] > change[1] else "back")
    assert tried == {"forward", "back"}
    assert len(changes_of(PARIS)) == 20


def until(recurrence: Cron, after_ms: int, end_ms: int) -> list[int]:
    return list(takewhile(lambda ms: ms < end_ms, recurrence.after(after_ms)))


def local(text: str, where: ZoneInfo = PARIS) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=where).timestamp() * 1000)


def shown(found: Iterator[int], count: int) -> list[str]:
    return [datetime.fromtimestamp(ms / 1000, PARIS).strftime("%a %d %b %H:%M") for ms in islice(found, count)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * 1-5", ["Fri 15 Jan 09:00", "Mon 18 Jan 09:00"]),
        ("0 9 * * FRI", ["Fri 15 Jan 09:00", "Fri 22 Jan 09:00"]),
        ("0 0 L * *", ["Sun 31 Jan 00:00", "Sun 28 Feb 00:00"]),
        ("0 0 * * 1#1", ["Mon 01 Feb 00:00", "Mon 01 Mar 00:00"]),
        ("@hourly", ["Fri 15 Jan 01:00", "Fri 15 Jan 02:00"]),
        ("@Monthly", ["Mon 01 Feb 00:00", "Mon 01 Mar 00:00"]),
        ("0  12 13 * 5", ["Fri 15 Jan 12:00", "Fri 22 Jan 12:00"]),  # the 13th, and every Friday
    ],
)
def test_expressions(expression: str, expected: list[str]) -> None:
    assert shown(cron(expression, PARIS).after(local("2027-01-15T00:00")), 2) == expected


def test_seconds_in_a_sixth_field() -> None:
    found = cron("*/15 * * * * *", PARIS).after(local("2027-01-15T00:00"))
    assert [ms - local("2027-01-15T00:00") for ms in islice(found, 3)] == [15_000, 30_000, 45_000]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("61 * * * *", "Bad minute"),
        ("* * * *", "Wrong number of fields"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("", "Wrong number of fields"),
        ("* " * 200, "must be text such as"),
        (None, "must be text such as"),
    ],
)
def test_what_can_not_be_read(expression: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"cron: .*{why}"):
        cron(expression, PARIS)


def test_dst_is_once_or_both() -> None:
    with pytest.raises(InvalidInput, match="dst: 'twice'"):
        cron("* * * * *", PARIS, "twice")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Europe/Pari", "", "/etc/passwd", "../x", "x" * 5000, "America", None, 5])
def test_unknown_zones(name: str) -> None:
    with pytest.raises(InvalidInput, match="tz: "):
        zone(name)
    with pytest.raises(InvalidInput, match="did you mean Europe/Paris"):
        zone("Europe/Pari")


@pytest.mark.parametrize(
    ("expression", "dst", "begin", "expected"),
    [
        ("30 2 * * *", "once", "2027-03-27T12:00", ["28 03:00 +0200", "29 02:30 +0200"]),
        ("30 2 * * *", "both", "2027-03-27T12:00", ["28 03:00 +0200", "29 02:30 +0200"]),
        ("0,30 2 * * *", "once", "2027-03-27T12:00", ["28 03:00 +0200", "29 02:00 +0200"]),
        ("*/15 * * * *", "once", "2027-03-28T01:40", ["28 01:45 +0100", "28 03:00 +0200"]),
        ("30 2 * * *", "once", "2027-10-30T12:00", ["31 02:30 +0200", "01 02:30 +0100"]),
        ("30 2 * * *", "both", "2027-10-30T12:00", ["31 02:30 +0200", "31 02:30 +0100"]),
        ("*/15 * * * *", "once", "2027-10-31T02:40", ["31 02:45 +0200", "31 03:00 +0100"]),
        ("*/15 * * * *", "both", "2027-10-31T02:40", ["31 02:45 +0200", "31 02:00 +0100"]),
    ],
)
def test_the_table_of_docs_schedules_when_clocks_change(
    expression: str, dst: Any, begin: str, expected: list[str]
) -> None:
    found = islice(cron(expression, PARIS, dst).after(local(begin)), 2)
    assert [datetime.fromtimestamp(ms / 1000, PARIS).strftime("%d %H:%M %z") for ms in found] == expected


def test_intervals() -> None:
    each = Every(600_000, 1_000)
    assert list(islice(each.after(0), 2)) == [601_000, 1_201_000]
    assert list(islice(each.after(601_000), 2)) == [1_201_000, 1_801_000]
    assert list(islice(each.after(1_200_999), 1)) == [1_201_000]


def test_civil_times_that_do_not_exist_or_come_twice() -> None:
    assert moments(datetime.fromisoformat("2027-03-28T02:30"), PARIS) == [local("2027-03-28T03:00")]
    twice = moments(datetime.fromisoformat("2027-10-31T02:30"), PARIS)
    assert [twice[1] - twice[0], len(twice)] == [3_600_000, 2]


@pytest.mark.parametrize(
    ("quiet", "at", "then"),
    [
        ("21:00-08:00", "2027-01-15T20:59", "2027-01-15T20:59"),
        ("21:00-08:00", "2027-01-15T21:00", "2027-01-16T08:00"),
        ("21:00-08:00", "2027-01-16T07:59", "2027-01-16T08:00"),
        ("21:00-08:00", "2027-01-16T08:00", "2027-01-16T08:00"),
        ("12:00-14:00", "2027-01-16T13:00", "2027-01-16T14:00"),
        ("01:00-02:30", "2027-03-28T01:30", "2027-03-28T03:00"),  # 02:30 does not exist
    ],
)
def test_quiet_hours(quiet: str, at: str, then: str) -> None:
    assert after_quiet(local(at), quiet_hours(quiet), PARIS) == local(then)


@pytest.mark.parametrize(
    "text", ["", "21-8", "24:00-08:00", "08:00-08:00", "08:00", None, "08:00-09:60", "0\u0668:00-09:00"]
)
def test_quiet_hours_that_can_not_be_read(text: str) -> None:
    with pytest.raises(InvalidInput, match="quiet: "):
        quiet_hours(text)


@pytest.mark.parametrize("hours", [-25, -1, 0, 1, 25])
def test_few_times_are_looked_at_around_a_change_of_clocks(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mover plans a schedule of every second four times a minute."""
    looked = 0

    def counted(local: datetime, where: ZoneInfo) -> list[int]:
        nonlocal looked
        looked += 1
        return moments(local, where)

    monkeypatch.setattr("streamdq.schedules.recurrence.moments", counted)
    change = datetime(2027, 3, 28, 1, tzinfo=UTC) + timedelta(hours=hours)
    assert next(cron("* * * * * *", PARIS).after(int(change.timestamp()) * 1000))
    assert looked < 2 * 3_605


@pytest.mark.parametrize("name", ["localtime", "posixrules", "posix/Europe/Paris", "right/Europe/Paris"])
def test_zones_that_differ_between_hosts_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="does not mean the same on every host"):
        zone(name)


@pytest.mark.parametrize("given", [ZoneInfo("Europe/Berlin"), UTC])
def test_a_zone_may_be_an_object(given: Any) -> None:
    assert zone(given).key == str(given)
