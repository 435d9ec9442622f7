"""The plugin costs nothing until one of its fixtures is used."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

_OUTSIDE = """
import sys

def test_nothing_is_loaded():
    loaded = [name for name in sys.modules if name.startswith("streamdq.")]
    assert loaded == ["streamdq.version", "streamdq.pytest_plugin"]
    assert not {"redis", "pydantic", "fakeredis"} & set(sys.modules)
"""
_INSIDE = """
import pytest
from streamdq import InvalidInput, Worker

async def test_in_a_loop(streamdq_run):
    with pytest.raises(InvalidInput, match="await drain"):
        streamdq_run(Worker())

def test_what_is_due_and_what_comes(streamdq_server, streamdq_queue, streamdq_run):
    worker, ran = Worker("redis://127.0.0.1:1"), []
    worker.handler("t")(lambda body: ran.append(body))
    began = streamdq_server.clock.now_ms
    streamdq_queue.enqueue("t", 1)
    streamdq_queue.enqueue("t", 2, delay="15h")
    streamdq_run(worker, 0)
    assert (ran, streamdq_server.clock.now_ms) == ([1], began)
    streamdq_run(worker, "20h")
    assert (ran, streamdq_server.clock.now_ms) == ([1, 2], began + 20 * 3_600_000)
    assert worker.url == "redis://127.0.0.1:1"

def test_each_test_has_a_server_of_its_own(streamdq_queue):
    assert streamdq_queue.stats().topics == {}
"""


def run(folder: Path, program: str, *options: str) -> str:
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    (folder / "test_it.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_it.py"]
    env = {"PYTHONPATH": ":".join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False).stdout


def test_it_loads_nothing_by_itself(tmp_path: Path) -> None:
    assert "1 passed" in (output := run(tmp_path, _OUTSIDE, "-p", "streamdq.pytest_plugin")), output


def test_its_fixtures(tmp_path: Path) -> None:
    output = run(tmp_path, _INSIDE, "-p", "streamdq.pytest_plugin", "-p", "pytest_asyncio.plugin")
    assert "3 passed" in output, output


def test_the_package_registers_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"streamdq": "streamdq.pytest_plugin"}
