"""Durations and points in time as callers write them."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdq.errors import InvalidInput
from streamdq.times.durations import MAX_DELAY_MS, moment_ms, show_ms, to_ms
from tests.cases import each


@each(
    "value, ms",
    [
        (0, 0),
        (1, 1000),
        (0.25, 250),
        ("15s", 15_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 1d 2h 3m 4.5s ", 93_784_500),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        (" 10m ", 600_000),
        ("3", 3000),
        ("0.5", 500),
        (timedelta(minutes=30), 1_800_000),
        (timedelta(milliseconds=1.4), 1),
        (True + 0.0, 1000),
        (3660 * 86_400, MAX_DELAY_MS),
    ],
)
def test_what_is_understood(value: Any, ms: int) -> None:
    assert to_ms(value) == ms


@each(
    "value",
    [
        -1, -0.001, "-5s", timedelta(seconds=-1), math.nan, math.inf, -math.inf, "nan", "inf", "",
        "abc", "5x", "1h-30m", "1 h 30 x", "s", "5sm", None, True, False, [], {}, b"5s", 1j,
        MAX_DELAY_MS / 1000 + 1, "1_0", "\u0661h", "\u0661", "11000d", 10**400, "1e400", timedelta.max,
    ],
)  # fmt: skip
def test_what_is_refused_names_the_argument(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^ttr: "):
        to_ms(value, "ttr")


def test_one_is_a_duration_and_true_is_none_in_any_order() -> None:
    assert to_ms(1) == 1000
    with pytest.raises(InvalidInput):
        to_ms(True)
    assert to_ms(1) == 1000


@given(st.integers(0, MAX_DELAY_MS))
def test_milliseconds_survive_every_way_to_write_them(ms: int) -> None:
    assert to_ms(f"{ms}ms") == to_ms(timedelta(milliseconds=ms)) == to_ms(ms / 1000) == ms


@given(st.integers(0, 1000), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert to_ms(text) == timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) // timedelta(
        milliseconds=1
    )


@given(st.text(max_size=20))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert 0 <= to_ms(text) <= MAX_DELAY_MS


@given(st.integers(1, MAX_DELAY_MS))
def test_what_is_shown_can_be_read_again_and_is_close(ms: int) -> None:
    assert ms * 0.5 < to_ms(show_ms(ms)) <= ms


@each(
    "ms, text",
    [(0, "0ms"), (0.5, "0.5ms"), (340, "340ms"), (15_000, "15s"), (5_400_000, "1h30m"), (90_061_001, "1d1h")],
)
def test_how_durations_are_shown(ms: float, text: str) -> None:
    assert show_ms(ms) == text


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001


def test_moments() -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC)
    assert moment_ms(when) == 1_893_553_445_678
    assert moment_ms(when.astimezone(timezone(timedelta(hours=8)))) == 1_893_553_445_678
    assert moment_ms(1_893_553_445_678) == 1_893_553_445_678


@each(
    "value",
    [
        NAIVE, 1_893_553_445, 1_893_553_445_678_000, -1, 0, 1.8e12, "1893553445678", None, True,
        datetime(1990, 1, 1, tzinfo=UTC), datetime(2300, 1, 1, tzinfo=UTC),
    ],
)  # fmt: skip
def test_moments_that_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^at: "):
        moment_ms(value)
