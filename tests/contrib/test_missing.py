"""Without its framework, a module of streamdq.contrib says what to install."""

import subprocess
import sys

import pytest

_RUN = """
import sys
sys.modules[sys.argv[1]] = None
from streamdq import MissingExtra
try:
    __import__(f"streamdq.contrib.{sys.argv[1]}")
except MissingExtra as error:
    print(error)
"""


@pytest.mark.parametrize("framework", ["fastapi", "django", "flask"])
def test_it_says_what_to_install(framework: str) -> None:
    run = [sys.executable, "-c", _RUN, framework]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"this needs {framework}, which is not installed: pip install {framework}\n"
