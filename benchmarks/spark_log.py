"""What Spark's event log tells of an analysis."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MB = 1 << 20
_NEARLY_ALL = 0.9


def log_settings(folder: str) -> dict[str, str]:
    """Settings by which Spark writes its log there."""
    return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}",
            "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"}  # fmt: skip


@dataclass(slots=True)
class Logged:
    """Of one Spark session. `scans`: stages that read nearly all of the events from files. `spilled_mb`: what was
    sorted on disk for want of memory, as it is there. `lost_executors`: that ended before the session did.
    """

    jobs: int = 0
    scans: int = 0
    tasks: int = 0
    task_cpu_s: float = 0
    longest_task_s: float = 0
    spilled_mb: float = 0
    lost_executors: int = 0


def read_log(folder: Path, events: int) -> Logged:
    found, of_files, read = Logged(), set[int](), Counter[int]()
    for written in _events(folder):
        match written["Event"]:
            case "SparkListenerJobStart":
                found.jobs += 1
            case "SparkListenerStageCompleted":
                stage = written["Stage Info"]
                if any(rdd["Name"] == "FileScanRDD" for rdd in stage["RDD Info"]):
                    of_files.add(stage["Stage ID"])
            case "SparkListenerTaskEnd":
                read[written["Stage ID"]] += _add_task(found, written)
            case "SparkListenerExecutorRemoved":
                found.lost_executors += 1
    found.scans = sum(read[stage] >= _NEARLY_ALL * events for stage in of_files)
    return found


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.iterdir():
        with path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)


def _add_task(found: Logged, written: dict[str, Any]) -> int:
    """Returns how many rows it has read."""
    info, metrics = written["Task Info"], written.get("Task Metrics") or {}
    found.tasks += 1
    found.task_cpu_s += metrics.get("Executor CPU Time", 0) / 1e9
    found.longest_task_s = max(found.longest_task_s, (info["Finish Time"] - info["Launch Time"]) / 1000)
    found.spilled_mb += metrics.get("Disk Bytes Spilled", 0) / _MB
    return int(metrics.get("Input Metrics", {}).get("Records Read", 0))
