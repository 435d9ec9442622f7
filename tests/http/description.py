"""The API's description, which several files of tests go through."""

from __future__ import annotations

from functools import cache
from typing import Any

from streamdq.http import create_app


@cache
def description() -> dict[str, Any]:
    """It takes half a second to make: only where tests read it, and not in each process that collects them."""
    return create_app("memory://unused", authentication="mine").openapi()
