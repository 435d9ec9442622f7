"""OpenTelemetry spans: "send TOPIC" where a job is enqueued, and "process TOPIC" around each attempt.

They follow the semantic conventions for messaging. An attempt begins a trace of its own, linked to the span in which
its job was enqueued: between the two may be weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        INVALID_SPAN,
        Link,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    from ..errors import MissingExtra

    raise MissingExtra("opentelemetry-api", "otel") from None

from ..errors import InvalidInput
from ..job.job import Job
from ..job.retry import Retry, Snooze
from ..operations.attempts.error_text import text_of
from ..operations.jobs.enqueue_many import EnqueueResult
from ..process.logs import log, what
from ..queue import AsyncQueue, Queue, store_of
from ..version import __version__
from ..worker.handlers import called
from ..worker.middleware import Attempt, CallNext
from ..worker.reports import may_be_shown
from ..worker.worker import Worker

_SCHEMA = "https://opentelemetry.io/schemas/1.27.0"
_propagator = TraceContextTextMapPropagator()
_instrumented: WeakKeyDictionary[Queue | AsyncQueue | Worker, _Tracing] = WeakKeyDictionary()


def instrument(target: Queue | AsyncQueue | Worker, tracer_provider: TracerProvider | None = None) -> None:
    """Makes spans for a queue's ``enqueue`` and ``enqueue_many``, or for a worker's attempts. Jobs of the queue carry
    the trace. ``tracer_provider`` None: the global one. Instrument a worker before you register other middleware, so
    that the span is around that as well. Instrumenting twice only changes the provider, even after
    ``opentelemetry-instrument``: there is one span for each call or attempt.

    Raises:
        InvalidInput: it is no queue and no worker.
        MissingExtra: ``streamdq[otel]`` is not installed.
    """
    start = get_tracer("streamdq", __version__, tracer_provider, _SCHEMA).start_as_current_span
    if not isinstance(target, Queue | AsyncQueue | Worker):
        raise InvalidInput(f"instrument: pass a Queue, an AsyncQueue or a Worker, not {type(target).__name__}")
    if (known := _instrumented.get(target)) is not None:
        known.start = start
        return
    tracing = _instrumented[target] = _Tracing(start)
    if isinstance(target, Worker):
        target.middleware(_Attempts(tracing, show_errors=target.show_errors))
        return
    store_of(target).session.bodies.carry_traces()
    wrap = _awaited if isinstance(target, AsyncQueue) else _blocking
    for name in ("enqueue", "enqueue_many"):  # on the object itself: a queue without spans pays nothing for them
        vars(target)[name] = wrap(getattr(target, name), tracing)


class _Tracing:
    """A tracer whose faults are logged, the first of each kind, and not passed on: the call of a job that was enqueued
    must not seem to have failed, nor an attempt whose handler has done its work.
    """

    def __init__(self, start: Callable[..., AbstractContextManager[Span]]) -> None:
        self.start = start
        self._reported: set[str] = set()

    def span(self, name: str, **options: Any) -> _Around:
        return _Around(self, name, options)

    def failed(self, error: Exception) -> None:
        kind = type(error).__qualname__
        if kind not in self._reported:
            self._reported.add(kind)
            log.warning("tracing failed", error=what(error))

    def tell(self, function: Callable[..., None], *args: Any, **options: Any) -> None:
        """Calls what adds something to a span."""
        try:
            function(*args, **options)
        except Exception as error:
            self.failed(error)


class _Around:
    """A span around a block; an empty one if the tracer makes none."""

    def __init__(self, tracing: _Tracing, name: str, options: dict[str, Any]) -> None:
        self._tracing, self._name, self._options = tracing, name, options
        self._made: AbstractContextManager[Span] | None = None

    def __enter__(self) -> Span:
        try:
            made = self._tracing.start(self._name, **self._options)
            span = made.__enter__()
        except Exception as error:
            self._tracing.failed(error)
            return INVALID_SPAN
        self._made = made
        return span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is None:
            return
        try:
            self._made.__exit__(kind, error, trace)
        except Exception as raised:
            if raised is not error:
                self._tracing.failed(raised)


def _of_topic(topic: object, operation: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "streamdq", "messaging.destination.name": str(topic),
        "messaging.operation.name": operation, "messaging.operation.type": kind,
    }  # fmt: skip


# -- producers


def _sending(tracing: _Tracing, args: Sequence[Any], kwargs: dict[str, Any]) -> _Around:
    topic = args[0] if args else kwargs.get("topic")
    return tracing.span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=_of_topic(topic, "send", "send"))


def _sent(span: Span, result: Job | EnqueueResult) -> None:
    if isinstance(result, Job):
        span.set_attribute("messaging.message.id", result.id)
    else:
        span.set_attribute("messaging.batch.message_count", result.created + len(result.existing))


def _blocking(method: Callable[..., Any], tracing: _Tracing) -> Callable[..., Any]:
    @wraps(method)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with _sending(tracing, args, kwargs) as span:
            result = method(*args, **kwargs)
            tracing.tell(_sent, span, result)
            return result

    return traced


def _awaited(method: Callable[..., Any], tracing: _Tracing) -> Callable[..., Any]:
    @wraps(method)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        with _sending(tracing, args, kwargs) as span:
            result = await method(*args, **kwargs)
            tracing.tell(_sent, span, result)
            return result

    return traced


# -- consumers


class _Attempts:
    """Middleware: a span around each attempt."""

    def __init__(self, tracing: _Tracing, *, show_errors: bool) -> None:
        self._tracing = tracing
        self._show_errors = show_errors

    async def __call__(self, attempt: Attempt, call_next: CallNext) -> None:
        with self._tracing.span(
            f"process {attempt.topic}",
            context=Context(),  # a trace of its own
            kind=SpanKind.CONSUMER,
            attributes=_of_attempt(attempt),
            links=[Link(sender) for job in attempt.jobs if (sender := sender_of(job)) is not None],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await call_next()
            except BaseException as error:
                shown = self._show_errors and not any(job.is_hidden for job in attempt.jobs) and may_be_shown(error)
                self._tracing.tell(_tell, span, error, shown=shown)
                raise


def _of_attempt(attempt: Attempt) -> dict[str, Any]:
    job = attempt.job
    attributes = _of_topic(attempt.topic, "process", "process") | {
        "messaging.consumer.group.name": attempt.group,
        "streamdq.late_ms": attempt.late_ms,
        "streamdq.attempt": job.attempt,
        "streamdq.step": job.step,
        "streamdq.reclaimed": attempt.crashes > 0,
    }
    if len(attempt.jobs) > 1:
        return attributes | {"messaging.batch.message_count": len(attempt.jobs)}
    return attributes | {"messaging.message.id": job.id, "messaging.message.body.size": len(job.raw_body)}


def _tell(span: Span, error: BaseException, *, shown: bool) -> None:
    """``shown``: with its message, which may quote the body."""
    kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    if isinstance(error, Snooze | Retry):
        return  # the handler wants to go on later
    if shown:
        called(span.record_exception, error)  # it runs the user's __str__
    span.set_status(Status(StatusCode.ERROR, text_of(error) if shown else kind))


def sender_of(job: Job) -> SpanContext | None:
    """The span in which the job was enqueued, if it carries it."""
    if job.trace is None:
        return None
    found = get_current_span(_propagator.extract({"traceparent": job.trace}, Context())).get_span_context()
    return found if found.is_valid else None
