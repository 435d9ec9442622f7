"""Carries the producer's trace in the job, over any delay and all retries. It changes no body."""

from __future__ import annotations

import re
import sys

from ..errors import MissingExtra
from .envelope import Envelope
from .protocol import Context

NAME = "trace"
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Carried:
    """Reads bodies that carry a trace; it needs no OpenTelemetry for that, and adds none."""

    name = NAME

    @property
    def tag(self) -> str:
        return ""

    def encode(self, data: bytes, context: Context) -> bytes | None:
        return None if context.head.endswith(NAME.encode()) else data  # it ends with the tag, if there is one

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:  # noqa: ARG002
        return data


class Trace(Carried):
    """A codec that stores the W3C ``traceparent`` of the current OpenTelemetry span beside each body. A body that is
    enqueued outside of spans stays as it is.

    Raises:
        MissingExtra: ``opentelemetry-api`` is not installed.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry.trace.propagation import tracecontext
        except ImportError:
            raise MissingExtra("opentelemetry-api", "otel") from None
        self._propagator = tracecontext.TraceContextTextMapPropagator()

    @property
    def tag(self) -> str:
        """The traceparent now; '' outside of spans."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers)
        return headers.get("traceparent", "")


def trace_of(stored: Envelope) -> str | None:
    """The traceparent that a body carries."""
    for layer in stored.layers:
        if layer.name == NAME and _TRACEPARENT.fullmatch(layer.tag):
            return layer.tag
    return None


def traceparent_now() -> str:
    """That of the current span; '' outside of spans, and in a process without OpenTelemetry."""
    return Trace().tag if "opentelemetry.trace" in sys.modules else ""
