"""What the doctor says about the memory of a Redis."""

from __future__ import annotations

import pytest

from streamdq.operations.checks.redis_server import memory_of

GIB = 1 << 30


@pytest.mark.parametrize(
    ("info", "verdict", "says"),
    [
        ({"maxmemory": f"{GIB}", "used_memory": "1"}, "ok", "noeviction"),
        ({"maxmemory": "0", "total_system_memory": f"{16 * GIB}"}, "advice", "CONFIG SET maxmemory 8192mb"),
        ({"maxmemory": "0"}, "advice", "maxmemory is not set"),
        ({"maxmemory": f"{GIB}", "used_memory": f"{GIB - 1000}"}, "problem", "raise maxmemory"),
        ({"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, "problem", "set it to noeviction"),
        ({"used_memory": "1"}, "ok", "noeviction"),
    ],
)
def test_memory(info: dict[str, str], verdict: str, says: str) -> None:
    found = memory_of({"maxmemory_policy": "noeviction", **info})
    assert found.verdict == verdict
    assert says in f"{found.what}; {found.advice}"
