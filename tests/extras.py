"""The command line without an optional package. It runs in a separate process, because modules that are imported again
here would exist beside those that other tests use.
"""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import HANG_S

_RUN = """
import sys
sys.modules[sys.argv[1]] = None
from streamdq.cli import app
sys.exit(app.run(sys.argv[2:]))
"""


def run_without(missing: str, *arguments: str) -> tuple[int, str]:
    """The exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, missing, *arguments], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    return done.returncode, done.stderr
