"""A schedule whose handler builds a flow, as docs/schedules.md shows it: killed in the middle of the block and after
it, it starts its flow once.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.config import Settings
from tests.children import child
from tests.conftest import BINARIES, needs_server
from tests.servers import Binary, Server
from tests.waiting import HANG_S, until

PARTS = 10
HANDLERS = """
import os, signal
from contextlib import suppress
from pathlib import Path
from streamdq import FlowExists, Job, NewJob, Queue, Worker
from streamdq.operations.flows import builder

builder.MAX_BATCH = 4  # so that some jobs are in Redis when the block is cut off
queue, worker = Queue(), Worker()


def die_once(where: str) -> None:
    with suppress(FileExistsError):
        Path(where).touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)


@worker.handler("report.start")
def start(report: dict, job: Job) -> None:
    with suppress(FlowExists), queue.flow(job.id) as flow:
        parts = flow.enqueue_many("report.part", (NewJob({"n": n}, id=f"{job.id}-{n}") for n in range(10)))
        die_once("inside")
        flow.enqueue("report.join", {"day": report["day"]}, after=parts)
    die_once("after")


@worker.handler("report.part")
@worker.handler("report.join")
def note(body: dict, job: Job) -> None: ...
"""


@pytest.mark.thorough
@pytest.mark.parametrize("binary", BINARIES[-1:] if BINARIES else [needs_server])
def test_each_occurrence_starts_its_flow_once(binary: Binary, tmp_path: Path) -> None:
    (tmp_path / "reports.py").write_text(HANDLERS)
    with Server(binary) as server, Queue(server.url, settings=Settings(url="memory://unused")) as queue:
        queue.schedule("report.start", {"day": "{due}"}, id="report", cron="0 2 * * *")
        yesterday = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
        assert queue.backfill("report.start", "report", yesterday, yesterday + timedelta(hours=3)) == 1
        (job,) = queue.find("report.start", id_prefix=f"report@{yesterday:%Y-%m-%d}")
        command = [sys.executable, "-c", "import sys; from streamdq.cli import main; sys.exit(main())"]
        command += ["--url", server.url, "worker", "reports:worker"]
        environment = os.environ | {"STREAMDQ_URL": server.url}
        for _ in ("inside", "after"):
            with child(command, cwd=tmp_path, env=environment) as worker:
                assert worker.wait(HANG_S) == -signal.SIGKILL
        with child(command, cwd=tmp_path, env=environment):
            until(lambda: (found := queue.flow_status(job.id)) and found.state == "done", "the flow is done")
            until(lambda: queue.get("report.start", job.id) is None, "its handler is through")
        status = queue.flow_status(job.id)
        assert status is not None
        assert [(one.topic, one.jobs, dict(one.counts)) for one in status.stages] == [
            ("report.part", PARTS, {"done": PARTS}), ("report.join", 1, {"done": 1}),
        ]  # fmt: skip
        groups = {
            topic: one.groups["default"] for topic, one in queue.stats().topics.items() if topic != "report.start"
        }
        assert (groups["report.part"].done, groups["report.join"].done) == (PARTS, 1)
        assert queue.audit().balanced
