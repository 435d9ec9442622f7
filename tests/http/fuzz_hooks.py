"""What the fuzzer must know about this API. It loads this as SCHEMATHESIS_HOOKS."""

from __future__ import annotations

from typing import Any

import schemathesis

from streamdq.errors import InvalidInput
from streamdq.times.durations import to_ms


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """A body of lines is any text."""
    return value.encode("utf-8", "replace") if isinstance(value, str) else repr(value).encode()


@schemathesis.hook
def before_call(_context: Any, case: schemathesis.Case, _kwargs: Any) -> None:
    """Shortens accepted waits for a job, and waits for no replicas: the server has none."""
    if case.query and str(case.query.get("durable", "")).startswith("replicas:"):
        case.query["durable"] = "memory"
    if case.path.endswith("/take") and case.query and "timeout" in case.query:
        try:
            waits = to_ms(case.query["timeout"]) > 1
        except InvalidInput:
            waits = False
        if waits:
            case.query["timeout"] = "1ms"
