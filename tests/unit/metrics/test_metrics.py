"""What is declared, and the one place that reaches into the library."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from streamdq.keys import ShardKeys
from streamdq.link import failures
from streamdq.metrics import declared, recorded
from streamdq.operations.attempts import measured
from streamdq.operations.attempts.ends import AttemptResult, DeadReason, End
from streamdq.store.replies import Refused
from tests.metrics import sample


def buckets(text: bytes) -> list[str]:
    return [line for line in text.decode().splitlines() if not line.startswith("#") and "_created" not in line]


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_many_at_once_is_the_same_as_one_by_one(count: int) -> None:
    values = [random.Random(count).choice([0.0, 0.001, 0.0015, 0.3, 1.0, 10.0, 1800.0, 4000.0]) for _ in range(count)]
    together, single = CollectorRegistry(), CollectorRegistry()
    batch = declared.BatchHistogram("h", "help", ("topic",), buckets=(0.001, 0.01, 1, 1800), registry=together)
    plain = Histogram("h", "help", ("topic",), buckets=(0.001, 0.01, 1, 1800), registry=single)

    batch.labels("t").observe_all(list(values))
    for value in values:
        plain.labels("t").observe(value)
    plain.labels("t")

    assert buckets(generate_latest(together)) == buckets(generate_latest(single))


def test_a_time_before_zero_counts_as_zero() -> None:
    registry = CollectorRegistry()
    batch = declared.BatchHistogram("h", "help", buckets=(0.001, 1), registry=registry)

    batch.observe_all([-5.0, 0.5])

    assert registry.get_sample_value("h_sum") == 0.5
    assert registry.get_sample_value("h_bucket", {"le": "0.001"}) == 1


def test_words_of_labels_are_those_of_the_code() -> None:
    assert set(declared.OUTCOMES) == {outcome.value for outcome in AttemptResult}
    assert set(declared.REASONS) == {reason.value for reason in DeadReason}
    help_of = {metric.name: metric.help for metric in declared.described()}
    assert all(outcome in help_of["streamdq_job_attempts_total"] for outcome in declared.OUTCOMES)
    assert all(reason in help_of["streamdq_jobs_dead_total"] for reason in declared.REASONS)
    assert all(kind in help_of["streamdq_redis_errors_total"] for kind in failures.KINDS)


def test_steps_are_few() -> None:
    assert declared.step_label(0, 1) == "1"
    assert declared.step_label(declared.MOST_STEPS - 1, 1) == "20"
    assert declared.step_label(declared.MOST_STEPS, 1) == "later"
    assert declared.step_label(500, 1) == "later"
    assert declared.step_label(3, 0) == "asked"


def test_topics_after_the_first_few_are_one() -> None:
    labels = declared.TopicLabels(2)

    assert [labels.of("n", topic) for topic in ("a", "b", "c", "a", "d", "b")] == ["a", "b", "other", "a", "other", "b"]
    assert labels.of("m", "a") == "other", "another namespace's topic is another topic"


def test_series_are_there_before_they_grow() -> None:
    labels = {"namespace": "n", "topic": "seen.early", "group": "default"}

    measured.expect("n", {"seen.early": 2}, "default")
    recorded.reclaimed("n", "seen.late", "default")
    recorded.not_put_in("n", "seen.early", 0)

    steps = [sample("streamdq_job_retries_total", labels | {"step": step}) for step in "123"]
    assert steps == [0, 0, None]
    assert sample("streamdq_jobs_dead_total", labels | {"reason": "crashed"}) == 0
    assert sample("streamdq_job_lateness_seconds_bucket", labels | {"le": "1.0"}) == 0
    assert sample("streamdq_job_lateness_seconds_count", labels) == 0
    for reason in ("ttr", "silent"):
        late = labels | {"topic": "seen.late", "reason": reason}
        assert sample("streamdq_jobs_reclaimed_total", late) == 0
    assert sample("streamdq_jobs_duplicate_total", {"namespace": "n", "topic": "seen.early"}) == 0


def test_what_was_handed_back_has_no_times() -> None:
    labels = {"namespace": "n", "topic": "handed.back", "group": "default"}
    held: Any = SimpleNamespace(
        shard=ShardKeys("n", "handed.back", 0), job=SimpleNamespace(topic="handed.back", raw_body=b""), group="default",
        started_ms=2, due_ms=1, entry=b"1700000000000-0", main=b"", took_s=1,
    )  # fmt: skip

    measured.attempts_ended([End(held, AttemptResult.RELEASED)], Refused(3, frozenset()))

    assert sample("streamdq_job_attempts_total", labels | {"outcome": "released"}) == 1
    assert sample("streamdq_job_lateness_seconds_count", labels) == 0


def test_the_last_success_of_a_schedule() -> None:
    labels = {"namespace": "n", "topic": "scheduled"}

    def done(*ids: str, at_ms: int) -> None:
        held: list[Any] = [
            SimpleNamespace(
                shard=ShardKeys("n", "scheduled", 0), group="default", started_ms=2, due_ms=1, entry=b"1700000000000-0",
                main=b"", took_s=1, job=SimpleNamespace(id=id, topic="scheduled", raw_body=b"", due_ms=1, created_ms=1),
            )
            for id in ids
        ]  # fmt: skip
        measured.attempts_ended([End(one, AttemptResult.DONE) for one in held], Refused(at_ms, frozenset()))

    done("order-42", "me@example.org", at_ms=5_000)
    assert sample("streamdq_schedule_last_success_timestamp_seconds", labels) is None
    done("order-42", "acme@2027-01-15T08:00:00Z", at_ms=6_000)
    done("order-42", at_ms=7_000)
    assert sample("streamdq_schedule_last_success_timestamp_seconds", labels) == 6


def test_counting_can_be_left_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_METRICS", "0")
    declared.counting.cache_clear()
    try:
        recorded.not_put_in("n", "left-off", 1)
        measured.expect("n", {"left-off": 1}, "default")
        recorded.reclaimed("n", "left-off", "default", ttr=1)
        recorded.moved("n", "left-off", 1, 0.1)
        assert b"left-off" not in generate_latest()
    finally:
        declared.counting.cache_clear()
