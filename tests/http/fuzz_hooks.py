"""What the fuzzer must be told of this API; loaded by it, as SCHEMATHESIS_HOOKS."""

from __future__ import annotations

from typing import Any

import schemathesis

from streamdq.durations import to_ms
from streamdq.errors import InvalidInput


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """A body of lines is any text."""
    return value.encode("utf-8", "replace") if isinstance(value, str) else repr(value).encode()


@schemathesis.hook
def before_call(_context: Any, case: schemathesis.Case, _kwargs: Any) -> None:
    """A wait for a job that would be accepted is made a short one."""
    if case.path.endswith("/take") and case.query and "timeout" in case.query:
        try:
            waits = to_ms(case.query["timeout"]) > 1
        except InvalidInput:
            waits = False
        if waits:
            case.query["timeout"] = "1ms"
