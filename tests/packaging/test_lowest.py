"""The core works with the lowest releases that pyproject.toml allows of what it depends on.

They get an environment of their own, with the newest pytest and so on that go with them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = [
    "tests/unit/job", "tests/unit/times", "tests/unit/schedules", "tests/unit/link", "tests/unit/test_config.py",
    "tests/redis/test_api.py", "tests/redis/test_names.py", "tests/redis/test_retry.py", "tests/redis/test_take.py",
    "tests/cli/test_commands.py",
]  # fmt: skip
TOOLS = ["fakeredis[lua]", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout"]
UV = shutil.which("uv", path=str(Path(sys.executable).parent))


def uv(*words: str | Path) -> str:
    assert UV is not None
    env = {**os.environ, "UV_SYSTEM_CERTS": "true"}
    done = subprocess.run([UV, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_the_core_on_the_lowest_releases(tmp_path: Path) -> None:
    releases, folder = tmp_path / "lowest.txt", tmp_path / "environment"
    lowest = ["--resolution", "lowest-direct", "--no-header", "--no-annotate", "--python", sys.executable]
    uv("pip", "compile", "--quiet", *lowest, "--extra", "embedded", "--output-file", releases, "pyproject.toml")
    uv("venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--requirement", releases, *TOOLS, "--editable", ".[embedded]")
    assert "redis==6.4.0" in uv("pip", "freeze", "--python", python)
    tests: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not thorough and not chaos",
        *CORE,
    ]
    done = subprocess.run(tests, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
