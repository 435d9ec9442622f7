"""Which of several processes runs which tests."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

_OWN_JAVA = ("test_cluster.py", "test_failures.py", "test_java.py", "test_memory.py")


def one_spark(config: Any, log: Any) -> Any:
    """As ``--dist loadfile``, but all tests that share a Spark session run in one process: Java compiles for a minute
    in each that starts one.
    """
    scheduler: Any = LoadFileScheduling(config, log)
    scheduler._split_scope = _part_of
    return scheduler


def _part_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return "tests/spark" if file.startswith("tests/spark/") and not file.endswith(_OWN_JAVA) else file
