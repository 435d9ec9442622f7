"""What a running job can do, while its attempt runs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from streamdq import Job, RunningJob, StaleClaim
from streamdq.config import Settings
from streamdq.operations.attempts.claimed import ClaimedJob
from streamdq.worker.member import Where
from streamdq.worker.queues import HandlerQueues
from streamdq.worker.running_job import Services, begin_attempt, end_attempt
from tests.unit.worker.rig import held, running_job

CALLS: list[Callable[[RunningJob], Any]] = [
    RunningJob.touch, RunningJob.time_left_s, lambda job: job.queue, lambda job: job.async_queue,
]  # fmt: skip


def services(touched: list[tuple[ClaimedJob, Any]]) -> Services:
    queues = HandlerQueues(Where("memory://unused", "test", Settings()))
    return Services(
        lambda held, ttr: touched.append((held, ttr)), lambda held, said: touched.append((held, said)), queues
    )


def begun(touched: list[tuple[ClaimedJob, Any]]) -> tuple[ClaimedJob, RunningJob]:
    one, job = held("1"), running_job("1")
    one.job = job
    begin_attempt(one, services(touched))
    return one, job


def test_its_attempt_is_touched() -> None:
    touched: list[tuple[ClaimedJob, Any]] = []
    one, job = begun(touched)
    job.touch("1s")
    assert touched == [(one, "1s")]


def test_it_has_the_time_that_its_attempt_has() -> None:
    one, job = begun([])
    one.deadline = float("inf")
    assert job.time_left_s() == float("inf")
    one.deadline = 0.0
    assert job.time_left_s() == 0


@pytest.mark.parametrize("call", CALLS)
def test_it_can_do_nothing_before_its_attempt_begins(call: Callable[[RunningJob], Any]) -> None:
    with pytest.raises(StaleClaim, match="job '1' is not running here"):
        call(running_job("1"))


@pytest.mark.parametrize("call", CALLS)
def test_it_can_do_nothing_once_its_attempt_has_ended(call: Callable[[RunningJob], Any]) -> None:
    one, job = begun([])
    end_attempt(one)
    with pytest.raises(StaleClaim, match="belongs in its handler"):
        call(job)


@pytest.mark.parametrize("call", CALLS)
def test_nor_while_another_thread_ends_it(call: Callable[[RunningJob], Any]) -> None:
    one, job = begun([])
    one.ended = True
    with pytest.raises(StaleClaim, match="belongs in its handler"):
        call(job)


def test_one_that_has_ended_can_be_pickled() -> None:
    one, job = begun([])
    end_attempt(one)
    assert pickle.loads(pickle.dumps(job)) == job == copy.copy(job)


def test_it_is_a_job_and_shows_what_a_job_shows() -> None:
    _, job = begun([])
    assert isinstance(job, Job)
    plain = Job("t", "1", b"1", job.due_ms, job.created_ms, attempt=1)
    assert repr(job) == f"Running{plain!r}"
    assert job == running_job("1")


@pytest.mark.parametrize("name", ["touch", "time_left_s", "queue", "async_queue"])
def test_a_job_that_does_not_run_has_none_of_it(name: str) -> None:
    assert not hasattr(Job("t", "1", b"1", 0, 0), name)
