"""The names of the package, and what comes along with each."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import streamdq

_PROGRAM = "import json, sys; from streamdq import {}; print(json.dumps(sorted(sys.modules)))"


def loaded_with(name: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM.format(name)], capture_output=True, timeout=60, check=True)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("Queue", ["streamdq.worker", "streamdq.embedded.server", "pydantic_settings", "structlog"]),
        ("Worker", ["streamdq.queue", "streamdq.embedded.server", "pydantic_settings", "structlog"]),
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
