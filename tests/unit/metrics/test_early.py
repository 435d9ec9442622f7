"""Counts that wait for prometheus_client."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from streamdq.metrics.recorded import Early

Seen = list[tuple[str, str, int]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def counting(seen: Seen) -> Callable[[str, str, int], None]:
    return lambda *count: seen.append(count)


def test_they_wait_for_the_library(
    seen: Seen, counting: Callable[[str, str, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)
    early = Early()
    for count in (0, 2, 0, 3):
        early.count(counting, "ns", "a", count)
    early.count(counting, "ns", "b", 0)
    assert seen == []

    monkeypatch.setitem(sys.modules, "prometheus_client", sys)
    early.count(counting, "ns", "a", 1)
    early.count(counting, "ns", "c", 0)

    assert seen == [("ns", "a", 5), ("ns", "b", 0), ("ns", "a", 1), ("ns", "c", 0)]


def test_none_waits_if_another_process_shows_them(
    seen: Seen, counting: Callable[[str, str, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "unused")
    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)

    Early().count(counting, "ns", "a", 1)

    assert seen == [("ns", "a", 1)]
