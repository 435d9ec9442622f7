"""Plans: what runs of what was missed, and what comes next."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streamdq.keys import shard_of
from streamdq.schedules.definition import Definition, define
from streamdq.schedules.plan import LATE_MS, MAX_ID_BYTES, make_plan, occurrence_id, occurrence_in

NOW = 1_800_000_000_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def minutely(**fields: object) -> Definition:
    return Definition(**({"every_ms": MINUTE, "anchor_ms": NOW} | fields))  # type: ignore[arg-type]


def times(definition: Definition, last_ms: int, now_ms: int, shards: int = 1) -> list[int]:
    return [one.time_ms - NOW for one in make_plan(definition, "s", last_ms, now_ms, shards).occurrences]


def test_an_hour_ahead_but_at_least_two_and_at_most_sixteen() -> None:
    assert times(minutely(), NOW, NOW) == [i * MINUTE for i in range(1, 17)]
    assert times(minutely(every_ms=DAY), NOW, NOW) == [DAY, 2 * DAY]
    assert times(minutely(every_ms=20 * MINUTE), NOW, NOW) == [i * 20 * MINUTE for i in (1, 2, 3)]


def test_the_same_again_after_some_of_it() -> None:
    plan = make_plan(minutely(), "s", NOW, NOW, 1)
    assert (plan.last_ms, plan.late_ms, plan.missed, plan.more) == (NOW, 0, 0, True)
    later = make_plan(minutely(), "s", plan.occurrences[3].time_ms, NOW + 4 * MINUTE, 1)
    assert later.occurrences[:12] == plan.occurrences[4:]


@pytest.mark.parametrize(
    ("catch_up", "runs"),
    [("none", []), ("last", [10]), (3 * MINUTE, [8, 9, 10]), (DAY, list(range(1, 11))), (0, [])],
)
def test_what_was_missed(catch_up: object, runs: list[int]) -> None:
    """Ten, the last of them 50 s ago."""
    now_ms = NOW + 10 * MINUTE + 50_000
    plan = make_plan(minutely(catch_up=catch_up), "s", NOW, now_ms, 1)
    late = [one for one in plan.occurrences if one.due_ms <= now_ms]
    assert [(one.time_ms - NOW) // MINUTE for one in late] == runs
    assert plan.missed == 10 - len(runs)
    assert plan.late_ms == (late[-1].due_ms if late else 0)
    assert plan.last_ms == (NOW + (10 - len(runs)) * MINUTE if plan.missed else NOW)
    assert [one.time_ms - NOW for one in plan.occurrences[len(late) :]][:2] == [11 * MINUTE, 12 * MINUTE]


@pytest.mark.parametrize("catch_up", ["none", "last", MINUTE])
def test_a_little_late_is_not_missed(catch_up: object) -> None:
    plan = make_plan(minutely(catch_up=catch_up, every_ms=10_000), "s", NOW, NOW + LATE_MS + 10_000, 1)
    assert plan.missed == 0
    assert [one.time_ms - NOW for one in plan.occurrences[:4]] == [10_000, 20_000, 30_000, 40_000]


def test_a_very_long_time_takes_several_plans() -> None:
    """Each counts some, until the last one is known."""
    last_ms, now_ms, missed, plans = NOW, NOW + 3 * DAY + 50_000, 0, 0
    while True:
        plan = make_plan(minutely(), "s", last_ms, now_ms, 1)
        missed, plans = missed + plan.missed, plans + 1
        if plan.occurrences:
            break
        assert plan.more
        assert plan.last_ms > last_ms
        last_ms = plan.last_ms
    assert (missed, plans) == (3 * 1440 - 1, 5)
    assert [one.time_ms - NOW for one in plan.occurrences[:2]] == [3 * DAY, 3 * DAY + MINUTE]


def test_many_that_run_late_take_several_plans() -> None:
    last_ms, now_ms, ran = NOW, NOW + 4 * HOUR, []
    while True:
        plan = make_plan(minutely(catch_up=DAY), "s", last_ms, now_ms, 1)
        assert plan.missed == 0
        late = [one.time_ms for one in plan.occurrences if one.due_ms <= now_ms]
        ran += late
        if len(plan.occurrences) > len(late):
            break
        assert plan.more
        last_ms = late[-1]
    assert ran == [NOW + i * MINUTE for i in range(1, 241)]


def test_it_ends() -> None:
    plan = make_plan(minutely(until_ms=NOW + 3 * MINUTE), "s", NOW, NOW, 1)
    assert ([one.time_ms - NOW for one in plan.occurrences], plan.more) == ([MINUTE, 2 * MINUTE, 3 * MINUTE], False)
    plan = make_plan(minutely(until_ms=NOW + 3 * MINUTE), "s", NOW, NOW + HOUR, 1)
    assert ([one.time_ms - NOW for one in plan.occurrences], plan.more) == ([3 * MINUTE], False), (
        "the last one was missed"
    )
    plan = make_plan(minutely(until_ms=NOW + 3 * MINUTE), "s", NOW + 3 * MINUTE, NOW + HOUR, 1)
    assert (plan.occurrences, plan.more) == ([], False)


def test_it_begins() -> None:
    assert times(minutely(start_ms=NOW + HOUR), NOW, NOW)[:2] == [HOUR, HOUR + MINUTE], "with a moment of the interval"


def test_jitter_is_even_and_the_same_everywhere() -> None:
    definition = minutely(jitter_ms=30_000)
    dues = [definition.due_ms("s", NOW + i * MINUTE) - NOW - i * MINUTE for i in range(2_000)]
    assert dues == [definition.due_ms("s", NOW + i * MINUTE) - NOW - i * MINUTE for i in range(2_000)]
    assert 0 <= min(dues) < 100
    assert 29_900 < max(dues) <= 30_000
    assert 14_000 < sum(dues) / len(dues) < 16_000
    plan = make_plan(definition, "s", NOW, NOW, 1)
    assert [one.due_ms for one in plan.occurrences] == [definition.due_ms("s", one.time_ms) for one in plan.occurrences]


def test_jitter_ends_before_the_next_one_comes() -> None:
    """Where clocks are set forward from 2:00 to 3:00, half an hour lies between them instead of an hour."""
    before_ms = int(datetime(2027, 3, 27, 12, tzinfo=UTC).timestamp() * 1000)
    halves_ms = before_ms + 13 * HOUR + MINUTE * 30
    definition = define(cron="30 2,3 * * *", tz="Europe/Paris", jitter="45m", catch_up="none")
    late = set()
    for i in range(100):
        first, second = make_plan(definition, f"s{i}", before_ms, before_ms, 1).occurrences[:2]
        assert (first.time_ms, second.time_ms) == (halves_ms - 30 * MINUTE, halves_ms)
        assert first.due_ms < second.time_ms <= second.due_ms <= second.time_ms + 45 * MINUTE
        late.add(first.due_ms)
        again = make_plan(definition, f"s{i}", first.time_ms, first.due_ms, 1)
        assert again.occurrences[0] == second
        assert make_plan(definition, f"s{i}", before_ms, second.due_ms - 1, 1).occurrences[-1] != first
    assert max(late) == halves_ms - 1


def test_ids_belong_to_the_first_shard() -> None:
    for shards in (1, 2, 7, 256):
        for i in range(50):
            name = occurrence_id("x" * MAX_ID_BYTES, NOW + i * 1_001, shards)
            assert shard_of(name, shards) == 0
            assert len(name) <= 255
    assert occurrence_id("acme", NOW, 1) == "acme@2027-01-15T08:00:00Z"
    assert occurrence_id("acme", NOW + 7, 1) == "acme@2027-01-15T08:00:00.007Z"


def test_an_occurrences_id_tells_its_schedule_and_time() -> None:
    for shards in (1, 256):
        for time_ms in (NOW, NOW + 7):
            assert occurrence_in(occurrence_id("a@b.1", time_ms, shards)) == ("a@b.1", time_ms)
    for other in ("acme", "acme@", "@2027-01-15T08:00:00Z", "acme@2027-13-15T08:00:00Z", "acme@2027-01-15T08:00:00"):
        assert occurrence_in(other) is None


def test_the_text_is_local() -> None:
    plan = make_plan(define(cron="0 9 * * *", tz="Europe/Paris"), "s", NOW, NOW, 1)
    assert [one.text for one in plan.occurrences] == ["2027-01-16T09:00:00+01:00", "2027-01-17T09:00:00+01:00"]


@pytest.mark.parametrize("missed", [999, 1_000, 1_001, 2_000])
def test_the_last_one_runs_however_many_were_missed(missed: int) -> None:
    now_ms, until_ms = NOW + (missed + 5) * MINUTE, NOW + missed * MINUTE
    first = make_plan(minutely(until_ms=until_ms), "s", NOW, now_ms, 1)
    second = make_plan(minutely(until_ms=until_ms), "s", first.last_ms, now_ms, 1)
    assert first.occurrences or first.more
    assert [one.time_ms for one in (first if first.occurrences else second).occurrences] == [until_ms]
