"""What one call of the command line costs, compared with importing the packages that it can't do without."""

from __future__ import annotations

import os
import subprocess
import sys

from streamdq import Queue

from .figures import Figure
from .harness import NAMESPACE, TOPIC, Bench, in_turn, median, new_jobs, spread

_ROUNDS = 10
_PACKAGES = "import redis, pydantic, typer"


def command_line(bench: Bench) -> list[Figure]:
    """``streamdq stats --json``, in CPU time of its process."""
    with bench.server() as server:
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, new_jobs(10))
        call = ["-m", "streamdq", "--url", server.url, "--namespace", NAMESPACE, "stats", "--json"]
        for words in (call, ["-c", _PACKAGES]):
            _cpu_ms(words)  # the first one may have to compile
        took, packages = in_turn(bench.rounds(_ROUNDS), lambda: _cpu_ms(call), lambda: _cpu_ms(["-c", _PACKAGES]))
    raw = {"call": spread(took), "packages": spread(packages)}
    floor = median(packages)
    return [Figure("command-line", "CPU of stats", median(took), "ms", floor, _PACKAGES, ratio_at_most=2.5, raw=raw)]


def _cpu_ms(words: list[str]) -> float:
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return (used.ru_utime + used.ru_stime) * 1000
