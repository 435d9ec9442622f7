"""What the benchmark tells of the processors, by kind of process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from benchmarks.spark_cpu import DAEMONS, EXECUTORS, KINDS, PYTHON, cpu_seconds
from tests.children import child

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_it_is_told_by_kind_of_process() -> None:
    with ExitStack() as stack:
        with cpu_seconds() as used:
            for words in (["…CoarseGrainedExecutorBackend"], ["org.apache.spark.deploy.worker.Worker", "--cores"], []):
                command = [sys.executable, "-c", BUSY, *words]
                process = stack.enter_context(child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                assert process.stdout is not None
                process.stdout.readline()  # it has used 0.3 s, which the system counts in ticks
        assert {kind for kind in KINDS if used[kind] >= 0.2} == {EXECUTORS, DAEMONS, PYTHON}
