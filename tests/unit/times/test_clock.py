"""The injected clock, and Redis's time as this host can tell it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamdq
import streamdq_spark
from streamdq.errors import InvalidInput
from streamdq.times import clock
from streamdq.times.clock import ManualClock, RedisClock, RedisTime


def test_the_real_clock_leaves_it_to_redis() -> None:
    assert RedisClock().argument() == ""
    assert not RedisClock().manual


def test_a_manual_clock_stands_still_until_told() -> None:
    clock, jumps = ManualClock(1_800_000_000_000), []
    forget = clock.on_change(lambda: jumps.append(clock.now_ms))
    assert clock.argument() == "1800000000000"
    clock.advance("15h")
    clock.advance(0.001)
    assert clock.argument() == "1800054000001"
    forget()
    clock.advance(1)
    assert jumps == [1_800_054_000_000, 1_800_054_000_001]


def test_time_does_not_go_back() -> None:
    with pytest.raises(InvalidInput, match=r"^advance: "):
        ManualClock().advance(-1)


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 0.3)), min_size=1), st.floats(-1e6, 1e6))
def test_redis_time_is_never_ahead_of_redis(calls: list[tuple[float, float]], skew_s: float) -> None:
    """Redis reads its clock at `sent`; the reply arrives after a while. Whatever the hosts' clocks say."""
    time, base = RedisTime(), 1_800_000_000.0
    for sent, took in calls:
        time.observe(int((base + sent) * 1000), sent + took + skew_s)
        due = base + 25
        assert time.to_monotonic(int(due * 1000)) >= 25 + skew_s - 0.001


def test_redis_time_is_behind_by_less_than_the_quickest_round_trip() -> None:
    time = RedisTime()
    time.observe(1_000_000, 10.2)
    time.observe(1_001_000, 11.001)
    time.observe(1_002_000, 12.3)
    assert time.to_monotonic(1_005_000) == pytest.approx(15.001)


def test_redis_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_time = RedisTime()
    redis_time.observe(1_000_000, 10.0)
    monkeypatch.setattr(time, "monotonic", lambda: 12.5)
    assert redis_time.now_ms() == pytest.approx(1_002_500)


def test_redis_time_follows_a_clock_that_was_set_back() -> None:
    time = RedisTime()
    time.observe(1_000_000, 10.0)
    time.observe(991_000, 11.0)
    assert time.to_monotonic(992_000) == pytest.approx(12.0)


def test_redis_time_forgets_old_offsets_as_clocks_drift() -> None:
    time = RedisTime()
    time.observe(1_000_000, 10.0)
    time.observe(1_030_990, 41.0)
    assert time.to_monotonic(1_030_990) == pytest.approx(41.0)


def test_no_other_module_reads_a_wall_clock() -> None:
    reads = re.compile(r"\btime\.time(_ns)?\(\)|\b(datetime|date)\.(now|utcnow|today)\(")
    found = [
        f"{path}:{number}"
        for package in (streamdq, streamdq_spark)
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py"))
        if path != Path(clock.__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if reads.search(line) and "such as datetime.now(UTC)" not in line
    ]
    assert found == []


@pytest.mark.parametrize("at_s", [0.0, 1_700_000_000.25])
def test_the_wall_clock_in_its_units(monkeypatch: pytest.MonkeyPatch, at_s: float) -> None:
    monkeypatch.setattr(time, "time", lambda: at_s)
    assert (clock.wall_s(), clock.wall_ms()) == (at_s, int(at_s * 1000))
    assert clock.wall_now() == datetime.fromtimestamp(at_s, UTC)
