"""What a child of a worker has started ends with it, whether the child returns or a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.mutants.worker import Worker
from tests.waiting import until


@pytest.mark.parametrize("how", ["returns", "hangs"])
def test_the_servers_of_a_child_end_with_it(tmp_path: Path, how: str) -> None:
    started = tmp_path / "pid"

    def work() -> str:
        started.write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
        if how == "hangs":
            os.kill(os.getpid(), signal.SIGALRM)
        return "done"

    assert Worker._in_child(work) == ("done" if how == "returns" else None)
    pid = int(started.read_text())
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "it has ended")
