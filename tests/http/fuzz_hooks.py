"""What the fuzzer must know about this API. It loads this as SCHEMATHESIS_HOOKS."""

from __future__ import annotations

from contextlib import suppress
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
    """Shortens accepted waits, and waits for no replicas: the server has none."""
    if case.query and str(case.query.get("durable", "")).startswith("replicas:"):
        case.query["durable"] = "memory"
    if case.path.endswith("/result") and case.query and str(case.query.get("wait_s")) == "30":
        case.query["wait_s"] = 0.001
    for end, longest_ms in (("/take", 1), ("/events", 0)):
        if case.path.endswith(end):
            case.query = {"timeout": "0"} | (case.query or {})
            with suppress(InvalidInput):
                if to_ms(case.query["timeout"]) > longest_ms:
                    case.query["timeout"] = f"{longest_ms}ms"
