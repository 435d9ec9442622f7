"""For the command ``opentelemetry-instrument``: spans for every queue and worker of a process, with no change to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

try:
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
    from opentelemetry.instrumentation.utils import unwrap
    from wrapt import wrap_function_wrapper
except ImportError:
    from ..errors import MissingExtra

    raise MissingExtra("opentelemetry-instrumentation", "otel") from None

from ..queue import AsyncQueue, Queue
from ..worker.worker import Worker
from .otel import instrument


class StreamdqInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments queues and workers that are made from now on, as ``instrument`` does."""

    def instrumentation_dependencies(self) -> Collection[str]:
        return ["streamdq"]

    def _instrument(self, **kwargs: Any) -> None:
        provider = kwargs.get("tracer_provider")

        def made(init: Callable[..., None], target: Any, args: Any, kwargs: Any) -> None:
            init(*args, **kwargs)
            instrument(target, provider)

        for kind in (Queue, AsyncQueue, Worker):
            wrap_function_wrapper(kind.__module__, f"{kind.__name__}.__init__", made)

    def _uninstrument(self, **kwargs: Any) -> None:  # noqa: ARG002
        for kind in (Queue, AsyncQueue, Worker):
            unwrap(kind, "__init__")
