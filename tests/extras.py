"""The command line without an optional package. It runs in a separate process, because modules that are imported again
here would exist beside those that other tests use.
"""

from __future__ import annotations

import subprocess
import sys

from tests.forked import ROOT, Forked
from tests.waiting import HANG_S


def run_without(missing: str, *arguments: str) -> tuple[int, str]:
    """The exit code and stderr."""
    with Forked(
        "tests.extras", missing, *arguments,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        _, err = process.communicate(timeout=HANG_S)
    return process.returncode, err


def main() -> int:
    from streamdq.cli import app

    sys.modules[sys.argv[1]] = None  # type: ignore[assignment]
    return app.run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
