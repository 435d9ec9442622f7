"""What a process that only enqueues has loaded, and that its counts are not lost by that."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.redis.harness import NAMESPACE, Space

_UNUSED = {
    "click", "cronsim", "difflib", "fakeredis", "fastapi", "fsspec", "prometheus_client",
    "pytest", "rich", "sqlalchemy", "structlog", "typer",
}  # fmt: skip
_ROOMS = {"cli", "dump", "embedded", "exporter", "http", "mover", "outbox", "schedules", "worker"}

_ENQUEUE = """
from streamdq import Queue, JobExists

with Queue({url!r}, {namespace!r}) as queue:
    queue.enqueue("order.close", {{"order": 42}}, delay="30m", id="a")
    queue.enqueue_many("order.close", [{{"body": {{}}, "at": 1_900_000_000_000}}])
    queue.cancel("order.close", "a")
"""
_MODULES = "import json, sys; print(json.dumps(sorted(sys.modules)))"
_COUNT_LATER = """
from streamdq import Queue, JobExists

with Queue({url!r}, {namespace!r}) as queue:
    for _ in range(3):
        try:
            queue.enqueue("order.close", {{}}, delay="30m", id="a")
        except JobExists:
            pass
    import prometheus_client
    assert b"streamdq" not in prometheus_client.generate_latest()
    queue.enqueue("order.close", {{}}, delay="30m", id="a", on_conflict="keep")
import json
print(json.dumps(prometheus_client.generate_latest().decode()))
"""


def run(space: Space, *parts: str) -> Any:
    program = "".join(parts).format(url=space.url, namespace=NAMESPACE)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_producer_loads_what_it_uses(space: Space) -> None:
    loaded = set(run(space, _ENQUEUE, _MODULES))

    assert loaded & _UNUSED == set()
    assert {name.split(".")[1] for name in loaded if name.startswith("streamdq.")} & _ROOMS == set()
    assert "streamdq.metrics.declared" not in loaded
    assert {"redis", "streamdq.operations.jobs.enqueue"} <= loaded


@pytest.mark.thorough
def test_duplicates_before_the_metrics_library_was_there_are_counted(space: Space) -> None:
    shown = run(space, _COUNT_LATER)

    labels = f'namespace="{NAMESPACE}",topic="order.close"'
    assert f"streamdq_jobs_duplicate_total{{{labels}}} 3.0" in shown
    assert f'streamdq_redis_errors_total{{kind="timeout",namespace="{NAMESPACE}"}} 0.0' in shown
