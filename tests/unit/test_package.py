"""The names of the package, and what comes along with each."""

from __future__ import annotations

import json
import pydoc
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

import streamdq

PLAIN: Any = pydoc.plaintext  # type: ignore[attr-defined] # which typeshed leaves out
_PROGRAM = "import json, sys; from streamdq import {}; print(json.dumps(sorted(sys.modules)))"


def loaded_with(name: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM.format(name)], capture_output=True, timeout=60, check=True)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize(
    ("name", "without"),
    [
        (
            "Queue",
            [
                "streamdq.worker",
                "streamdq.operations.jobs.enqueue",
                "streamdq.config",
                "pydantic",
                "redis",
                "structlog",
            ],
        ),
        ("Worker", ["streamdq.queue", "streamdq.embedded.server", "structlog"]),
        ("Job", ["streamdq.queue", "streamdq.worker", "redis", "prometheus_client"]),
        ("__version__", ["pydantic"]),
    ],
)
def test_a_program_loads_what_it_needs(name: str, without: list[str]) -> None:
    assert loaded_with(name) & {"streamdq", *without} == {"streamdq"}


def test_all_names_are_there_and_no_others() -> None:
    for name in streamdq.__all__:
        assert getattr(streamdq, name) is getattr(streamdq, name), name
    assert set(streamdq.__all__) <= set(dir(streamdq))
    with pytest.raises(AttributeError, match="module 'streamdq' has no attribute 'Wroker'"):
        streamdq.Wroker  # noqa: B018


def test_help_shows_methods_as_they_are_called() -> None:
    shown = pydoc.render_doc(streamdq.Queue.enqueue, renderer=PLAIN)
    awaited = pydoc.render_doc(streamdq.AsyncQueue.get, renderer=PLAIN)
    collected = pydoc.render_doc(streamdq.operations.jobs.pipeline.Pipeline.enqueue, renderer=PLAIN)

    assert "enqueue(self, topic: 'str', body: 'Any' = {}, *, delay: 'Duration | None' = None" in shown
    assert "durable: 'str | None' = None) -> 'Job'" in shown
    assert "Enqueues one job, due after ``delay`` by Redis's clock" in shown
    assert "async get(self, topic: 'str', id: 'str', *, key: 'str | None' = None) -> 'Job | None'" in awaited
    assert "-> 'Pipelined'" in collected
    assert streamdq.Queue.enqueue.__qualname__ == "Queue.enqueue"
    assert get_type_hints(streamdq.Queue.get)["return"] == streamdq.Job | None
