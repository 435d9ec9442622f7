"""What the benchmark takes from Spark's event log, and what it makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks.spark import Figures, verdicts
from benchmarks.spark_cluster import Run
from benchmarks.spark_cluster import verdicts as of_cluster
from benchmarks.spark_log import Logged, read_log

MB = 1 << 20


def stage(number: int, *rdds: str) -> dict[str, Any]:
    told = {"Stage ID": number, "RDD Info": [{"Name": name} for name in rdds]}
    return {"Event": "SparkListenerStageCompleted", "Stage Info": told}


def task(of_stage: int, rows: int, seconds: int, spilled: int = 0) -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": of_stage,
        "Task Info": {"Launch Time": 5000, "Finish Time": 5000 + seconds * 1000},
        "Task Metrics": {
            "Executor CPU Time": seconds * 500_000_000, "Disk Bytes Spilled": spilled,
            "Input Metrics": {"Records Read": rows},
        },
    }  # fmt: skip


def test_the_log_is_added_up(tmp_path: Path) -> None:
    told = [
        {"Event": "SparkListenerJobStart"}, {"Event": "SparkListenerJobStart"},
        task(0, 60, 3), task(0, 40, 5, spilled=2 * MB), stage(0, "FileScanRDD", "MapPartitionsRDD"),
        task(1, 100, 1), stage(1, "MapPartitionsRDD"),  # from what is kept
        task(2, 50, 1), stage(2, "FileScanRDD"),  # half of the days
        {"Event": "SparkListenerExecutorRemoved"},
        {**task(3, 0, 1), "Task Metrics": None},  # it was lost
    ]  # fmt: skip
    (tmp_path / "log").write_text("\n".join(map(json.dumps, told)))
    found = read_log(tmp_path, 100)
    assert found == Logged(
        jobs=2, scans=1, tasks=5, task_cpu_s=5.0, longest_task_s=5.0, spilled_mb=2.0, lost_executors=1
    )


def figures(events: int, **others: float) -> Figures:
    return Figures(events, **{"seconds": events / 1e5, "cpu_seconds": 1, "driver_live_mb": 100, **others})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("large", "wrong"),
    [
        (figures(3_000_000), []),
        (figures(3_000_000, spilled_mb=7), ["3,000,000 events: 7 MB sorted on disk"]),
        (figures(3_000_000, scans=5), ["3,000,000 events were read 5 times"]),
        (figures(3_000_000, seconds=40), ["3,000,000 events took 4.0 × 1,000,000 events"]),
        (figures(3_000_000, driver_live_mb=200), ["the driver held 200 MB, of 1,000,000 100 MB"]),
    ],
)
def test_what_is_worse_is_told(large: Figures, wrong: list[str]) -> None:
    assert verdicts([figures(1_000_000), large]) == wrong


def tables(folder: Path, name: str, values: Sequence[float]) -> Path:
    """A table of one column, in two files."""
    for n in range(2):
        file = folder / name / "retries" / f"dt=2026-01-0{n + 1}" / "part.parquet"
        file.parent.mkdir(parents=True)
        parquet.write_table(pa.table({"share": list(values[n::2])}), file)
    return folder / name


def test_a_worker_that_was_lost_leaves_the_same_tables(tmp_path: Path) -> None:
    whole = Run("undisturbed", 50, {}, Logged(longest_task_s=5), tables(tmp_path, "a", [0.1, 0.2, 0.3]))
    same = Run("killed", 60, {}, Logged(lost_executors=1), tables(tmp_path, "b", [0.3, 0.2, 0.1]))
    other = Run("killed", 60, {}, Logged(lost_executors=1), tables(tmp_path, "c", [0.1, 0.2, 0.4]))
    late = Run("killed", 50, {}, Logged(), same.tables)
    slow = Run("undisturbed", 49, {}, whole.logged, whole.tables)
    assert of_cluster(whole, same) == []
    assert of_cluster(whole, other) == ["retries differs"]
    assert of_cluster(whole, late) == ["no executor was lost: the analysis ended before"]
    assert of_cluster(slow, same) == ["the longest task took 10% of the time"]
