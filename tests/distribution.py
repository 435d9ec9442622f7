"""Which of several processes runs which tests, and when."""

from __future__ import annotations

from functools import cache
from typing import Any

from xdist.scheduler import LoadFileScheduling

_SPARK = "tests/spark"
_OWN_JAVA = ("test_cluster.py", "test_connect.py", "test_failures.py", "test_java.py", "test_memory.py")

_STREAMS = ("test_live.py", "test_sink.py", "test_source.py")
_APART = ("tests/crash/test_silent.py", "tests/redis/test_lost_node.py")
"""Files whose tests wait for long and share nothing: one of them would keep a single process till the end."""

FIRST = (
    _SPARK, "tests/crash/", "tests/redis/test_lost_node.py", "tests/spark/", "tests/dashboards/", "tests/benchmarks/",
    "tests/simulation/", "tests/outbox/", "tests/mutants/",
    "tests/redis/test_resharding.py", "tests/redis/test_embedded.py",
    "tests/redis/test_readme.py", "tests/archive/", "tests/http/", "tests/packaging/", "tests/cli/", "tests/redis/",
)  # fmt: skip
"""Where single tests take seconds; left to the end, such a file would have the other processes wait for it. The session
of Spark computes for minutes, and leaves time to what follows, which mostly waits.
"""


class OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """As ``--dist loadfile``, but all tests that share a Spark session run in one process: Java compiles for a minute
    in each that starts one. Those of streams run in another if the thorough tests are tried, too. What takes long
    begins first; of the rest, and within a folder, the files with the most tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid, streams_apart="not thorough" not in self.config.getoption("markexpr"))

    def _assign_work_unit(self, node: Any) -> None:
        # The first of those that come first, as xdist has ordered them.
        self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
        super()._assign_work_unit(node)


def part_of(nodeid: str, *, streams_apart: bool = True) -> str:
    """The tests that stay together."""
    file = nodeid.partition("::")[0]
    if file in _APART:
        return nodeid
    if not file.startswith(f"{_SPARK}/") or file.endswith(_OWN_JAVA):
        return file
    return f"{_SPARK}/streams" if streams_apart and file.endswith(_STREAMS) else _SPARK


@cache
def turn(part: str) -> int:
    """Lower comes first."""
    file = part.partition("::")[0]
    names = (file, file.rpartition("/")[0] + "/")
    return next((place for place, first in enumerate(FIRST) if first in names), len(FIRST))
