"""The command line where an optional package is not installed: in a process of its own, as modules that are imported
anew here would stand beside those that other tests hold.
"""

from __future__ import annotations

import subprocess
import sys

_RUN = """
import sys
sys.modules[sys.argv[1]] = None
from streamdq.cli import app
sys.exit(app.run(sys.argv[2:]))
"""


def run_without(missing: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and what is told on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, missing, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr
