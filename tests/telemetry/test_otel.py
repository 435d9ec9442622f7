"""Spans of producers and consumers, and the trace that a job carries from one to the other."""

from __future__ import annotations

import re
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from streamdq import AsyncQueue, InvalidInput, Job, JobExists, NewJob, Queue, Retry, Snooze, Worker
from streamdq.codec import Encrypt, Zstd
from streamdq.codec.encrypt import new_key
from streamdq.telemetry.instrumentor import StreamdqInstrumentor
from streamdq.telemetry.otel import instrument
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, answer, receiving
from tests.redis.harness import NAMESPACE, Space

SEND, PROCESS = SpanKind.PRODUCER, SpanKind.CONSUMER
TRACEPARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-0[13]")  # sampled, and perhaps random


def traced(space: Space, provider: TracerProvider, **options: Any) -> Queue:
    queue = Queue(space.url, NAMESPACE, settings=space.settings, clock=space.clock, **options)
    instrument(queue, provider)
    return queue


def at_work(space: Space, provider: TracerProvider, **options: Any) -> Worker:
    worker = Worker(space.url, NAMESPACE, settings=space.settings, clock=space.clock, **options)
    instrument(worker, provider)
    return worker


def of_kind(spans: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is kind]


async def test_an_attempt_is_linked_to_its_producer_over_delay_and_retries(
    space: Space, clock: ManualClock, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    worker = at_work(space, provider)
    carried: list[str | None] = []

    @worker.handler("t", retry="15s 3m")
    async def handler(_: Any, job: Job) -> None:
        carried.append(job.trace)
        if job.attempt < 3:
            raise OSError("not yet")

    with traced(space, provider) as queue, provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
        job = queue.enqueue("t", {"order": 7}, delay="30d")
    await drain(worker, clock, "31d")

    (sent,) = of_kind(spans, SEND)
    assert (sent.name, sent.parent) == ("send t", checkout.get_span_context())
    assert dict(sent.attributes or {}) == {
        "messaging.system": "streamdq", "messaging.destination.name": "t", "messaging.operation.name": "send",
        "messaging.operation.type": "send", "messaging.message.id": job.id,
    }  # fmt: skip
    attempts = of_kind(spans, PROCESS)
    assert [span.name for span in attempts] == ["process t"] * 3
    for span in attempts:
        assert span.parent is None, "a trace of its own"
        (link,) = span.links
        assert (link.context.trace_id, link.context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert len({span.context.trace_id for span in [*attempts, sent]}) == 4
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert attempts[0].status.description == "OSError: not yet"
    assert [event.name for event in attempts[0].events] == ["exception"]
    found = TRACEPARENT.fullmatch(carried[0] or "")
    assert found is not None
    assert carried == [found[0]] * 3
    assert (int(found[1], 16), int(found[2], 16)) == (sent.context.trace_id, sent.context.span_id)
    assert {name: value for name, value in (attempts[1].attributes or {}).items() if "operation" not in name} == {
        "messaging.system": "streamdq", "messaging.destination.name": "t", "messaging.consumer.group.name": "default",
        "messaging.message.id": job.id, "messaging.message.body.size": len(job.raw_body), "error.type": "OSError",
        "streamdq.attempt": 2, "streamdq.step": 1, "streamdq.late_ms": 0, "streamdq.reclaimed": False,
    }  # fmt: skip


async def test_lateness_and_a_lost_consumer(
    space: Space, clock: ManualClock, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    space.queue.enqueue("t", 1, ttr="10s")
    assert space.queue.take("t")
    clock.advance(11)  # nobody finishes it in time
    worker = at_work(space, provider)
    worker.handler("t")(lambda _: None)
    await space.burst(worker)
    (span,) = of_kind(spans, PROCESS)
    assert span.attributes is not None
    assert span.attributes["streamdq.reclaimed"] is True
    assert span.attributes["streamdq.late_ms"] == 11_000


async def test_several_jobs_sent_and_processed_together(
    space: Space, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings, clock=space.clock) as queue:
        instrument(queue, provider)
        await queue.enqueue(topic="t", body=0)
        await queue.enqueue_many("t", [NewJob(i) for i in (1, 2)])
    worker = at_work(space, provider)

    @worker.handler("t", batch=10)
    async def handler(_: list[int]) -> None:
        pass

    await space.burst(worker)
    single, several = of_kind(spans, SEND)
    assert several.attributes is not None
    assert several.attributes["messaging.batch.message_count"] == 2
    senders = [link.context.span_id for span in of_kind(spans, PROCESS) for link in span.links]
    assert sorted(senders) == sorted([single.context.span_id, several.context.span_id, several.context.span_id])


async def test_what_the_handler_asks_for_is_no_error(
    space: Space, clock: ManualClock, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    space.queue.enqueue("t", 1)
    worker = at_work(space, provider)
    asked = [Snooze("1s"), Retry(delay="1s"), None]

    @worker.handler("t")
    async def handler(_: int) -> None:
        if (error := asked.pop(0)) is not None:
            raise error

    await drain(worker, clock, "1m")
    attempts = of_kind(spans, PROCESS)
    assert {span.status.status_code for span in attempts} == {StatusCode.UNSET}
    assert [(span.attributes or {}).get("error.type") for span in attempts] == ["Snooze", "Retry", None]
    assert not any(span.links or span.events for span in attempts), "nobody traced it"


async def test_an_encrypted_body_carries_its_trace_and_no_message_is_kept(
    space: Space, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    codec = [Zstd(over=1), Encrypt(new_key("k"))]
    with traced(space, provider, codec=codec) as queue:
        job = queue.enqueue("t", {"card": "4111" * 100}, retry="none")
        again = queue.get("t", job.id)
    assert again is not None
    assert (again.trace, again.body) == (job.trace, {"card": "4111" * 100})
    worker = at_work(space, provider, codec=codec)

    @worker.handler("t")
    async def handler(body: dict[str, str]) -> None:
        raise ValueError(body["card"])

    await space.burst(worker)
    (span,) = of_kind(spans, PROCESS)
    assert span.status.description == "ValueError"
    assert "4111" not in span.to_json()
    assert len(span.links) == 1


async def test_no_trace_is_stored_without_a_span_and_readers_need_no_configuration(
    space: Space, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    with traced(space, TracerProvider(shutdown_on_exit=False), codec=[]) as queue:
        with provider.get_tracer("shop").start_as_current_span("checkout"):
            job = queue.enqueue("t", {"a": 1})
        assert job.trace is not None
    plain = space.job(job.id)
    assert (plain.body, plain.trace, plain.version) == ({"a": 1}, job.trace, 1)
    assert plain.raw_body == b"\xff1;trace:" + job.trace.encode() + b'\n{"a":1}'
    with Queue(space.url, NAMESPACE, codec=[], settings=space.settings, clock=space.clock) as queue:
        assert queue.enqueue("t", 2).raw_body == b"2"
    assert len(spans.get_finished_spans()) == 1
    worker = space.worker()
    worker.handler("t")(lambda _: None)
    await space.burst(worker)


def test_a_call_that_fails_is_an_error_of_its_span(
    space: Space, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    with traced(space, provider) as queue:
        queue.enqueue("t", 1, id="a")
        with pytest.raises(JobExists):
            queue.enqueue("t", 2, id="a")
    assert [span.status.status_code for span in of_kind(spans, SEND)] == [StatusCode.UNSET, StatusCode.ERROR]


async def test_what_can_not_be_read_as_text_is_reported_by_its_class(
    space: Space, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    space.queue.enqueue("t", 1, retry="none")
    worker = at_work(space, provider)

    @worker.handler("t")
    async def handler(_: int) -> None:
        raise Odd

    await space.burst(worker)
    (span,) = of_kind(spans, PROCESS)
    assert span.status.status_code is StatusCode.ERROR
    assert str((span.attributes or {})["error.type"]).endswith("Odd")
    (dead,) = space.queue.dead("t")
    assert "Odd" in (dead.groups["default"].error or ""), "the error is the handler's own"


@pytest.mark.parametrize("with_spans", [True, False])
async def test_a_receiver_of_callbacks_gets_the_trace(
    space: Space, spans: InMemorySpanExporter, provider: TracerProvider, with_spans: bool
) -> None:
    async with receiving() as receiver:
        receiver.reply = answer(204)
        with traced(space, provider) as queue:
            job = queue.enqueue("t", 1, url=receiver.url)
        worker = caller(space, "t")
        if with_spans:
            instrument(worker, provider)
        await space.burst(worker)
        reported = _header(receiver)
    if not with_spans:
        assert reported == job.trace
        return
    (span,) = of_kind(spans, PROCESS)
    found = TRACEPARENT.fullmatch(reported)
    assert found is not None
    assert (int(found[1], 16), int(found[2], 16)) == (span.context.trace_id, span.context.span_id)


def _header(receiver: Receiver) -> str:
    (request,) = receiver.requests
    return request.headers["traceparent"]


def test_only_queues_and_workers_can_be_instrumented() -> None:
    with pytest.raises(InvalidInput, match="not str"):
        instrument("queue")  # type: ignore[arg-type]


# -- tracers with faults


class Faulty(SpanProcessor):
    """Raises when a span starts, gets an attribute, or ends."""

    def __init__(self, fails: str) -> None:
        self._fails = fails

    def fail(self, *_: Any) -> None:
        raise RuntimeError(f"the {self._fails} failed")

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002
        if self._fails == "start":
            self.fail()
        if self._fails == "attributes":
            span.set_attribute = self.fail

    def on_end(self, span: Any) -> None:  # noqa: ARG002
        if self._fails == "end":
            self.fail()


class FaultySampler(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the sampler failed")

    def get_description(self) -> str:
        return "faulty"


def faulty(fails: str) -> TracerProvider:
    if fails == "sampler":
        return TracerProvider(shutdown_on_exit=False, sampler=FaultySampler())
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Faulty(fails))
    return provider


@pytest.mark.parametrize("fails", ["sampler", "start", "attributes", "end"])
async def test_a_tracer_that_fails_fails_no_job(
    space: Space, clock: ManualClock, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    worker, attempts = at_work(space, faulty(fails)), list[tuple[int, int]]()

    @worker.handler("t", retry="1m")
    async def handler(body: int, job: Job) -> None:
        attempts.append((body, job.attempt))
        if body == 2 and job.attempt == 1:
            raise OSError("not yet")

    with traced(space, faulty(fails)) as queue:
        for body in (1, 2):
            assert queue.enqueue("t", body, id=f"j{body}", delay="1h").id == f"j{body}"
        with pytest.raises(JobExists):
            queue.enqueue("t", 1, id="j1")
        assert queue.enqueue_many("t", [NewJob(3, delay="1h")]).created == 1
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings, clock=clock) as queue_too:
        instrument(queue_too, faulty(fails))
        await queue_too.enqueue("t", 4, delay="1h")
    await drain(worker, clock, "2h")

    assert sorted(attempts) == [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1)]
    reported = [record.getMessage() for record in caplog.records if "tracing failed" in record.getMessage()]
    assert len(reported) == 3, "the first of each queue, and of the worker"
    assert all("RuntimeError at" in line for line in reported)


async def test_spans_that_are_not_sampled_are_carried_all_the_same(space: Space, clock: ManualClock) -> None:
    provider = TracerProvider(shutdown_on_exit=False, sampler=ALWAYS_OFF)
    worker, carried = at_work(space, provider), list[str | None]()

    @worker.handler("t")
    async def handler(_: Any, job: Job) -> None:
        carried.append(job.trace)

    with traced(space, provider) as queue:
        queue.enqueue("t", 1)
    await drain(worker, clock, "1m")
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-0[02]", carried[0] or "")


async def test_what_is_instrumented_twice_makes_one_span(
    space: Space, clock: ManualClock, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    """As by opentelemetry-instrument and by the program itself; the later provider counts."""
    StreamdqInstrumentor().instrument()
    try:
        worker = at_work(space, provider)
        queue = traced(space, provider)
        awaited = AsyncQueue(space.url, NAMESPACE, settings=space.settings, clock=space.clock)
    finally:
        StreamdqInstrumentor().uninstrument()
    instrument(awaited, provider)
    worker.handler("t")(_nothing)
    async with awaited:
        await awaited.enqueue("t", 1)
        await awaited.enqueue_many("t", [NewJob(1), NewJob(2)])
    with queue:
        queue.enqueue("t", 1)
        queue.enqueue_many("t", [NewJob(1), NewJob(2)])
    await drain(worker, clock, "1s")
    assert [len(of_kind(spans, kind)) for kind in (SEND, PROCESS)] == [4, 6]
    instrument(worker, TracerProvider())  # nobody looks at that one
    with queue:
        queue.enqueue("t", 1)
    await drain(worker, clock, "1s")
    assert [len(of_kind(spans, kind)) for kind in (SEND, PROCESS)] == [5, 6]


async def _nothing(_: Any) -> None:
    pass
