"""When a worker is alive, ready and stalled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from streamdq.process.health import STALLED_S, Health, Report, WorkerHealth

READY = Report(0.0, "ready", "", "me", 1, slots=10)


def test_a_worker_is_stalled_while_its_loop_or_all_of_its_handlers_hang() -> None:
    def gauge() -> Any:
        return REGISTRY.get_sample_value("streamdq_workers_stalled", {"namespace": "of-health", "group": "g"})

    one = WorkerHealth("of-health", "g", 2)
    one.state = "ready"
    assert (one.stalled, gauge(), one.report(1).ready) == ("", 0, True)
    one.blocked(STALLED_S - 0.1)
    one.hang(1)
    assert (one.stalled, gauge()) == ("", 0)
    one.blocked(STALLED_S)
    assert (one.stalled, gauge(), one.report(1).ready) == ("loop", 1, False)
    one.blocked(0)
    one.hang(2)
    assert (one.stalled, gauge()) == ("handlers", 1)
    one.close()
    assert gauge() == 0


def test_the_last_claim_and_the_state_are_in_the_report() -> None:
    one = WorkerHealth("of-health", "g", 2)
    assert (one.report(0).last_claim_s, one.report(0).ready) == (None, False)
    one.claimed()
    one.state = "draining"
    report = one.report(1)
    assert report.last_claim_s is not None
    assert (report.running, report.slots, report.ready) == (1, 2, False)


@pytest.mark.parametrize(
    ("age_s", "stalled"), [(0, ""), (STALLED_S - 0.1, ""), (STALLED_S, "process"), (-1, "process")]
)
def test_a_process_that_reports_no_more_stands_still_or_is_gone(age_s: float, stalled: str) -> None:
    """An age below 0: the host has been started again since."""
    assert READY.seen_at(age_s).stalled == stalled


def test_several_processes_live_while_one_does() -> None:
    stalled = replace(READY, stalled="loop")
    assert (Health([READY, stalled]).alive, Health([READY, stalled]).ready) == (True, True)
    assert (Health([stalled, stalled]).alive, Health([stalled, stalled]).ready) == (False, False)
    starting = replace(READY, state="starting")
    assert (Health([starting]).alive, Health([starting]).ready) == (True, False)


def test_without_a_process_nothing_lives() -> None:
    assert (Health(()).alive, Health(()).ready) == (False, False)
