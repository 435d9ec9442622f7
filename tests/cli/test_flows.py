"""The commands on flows."""

from __future__ import annotations

from streamdq import NewJob, Queue
from tests.cli.conftest import Run


def test_show_and_cancel(run: Run, queue: Queue) -> None:
    with queue.flow("report-7") as flow:
        parts = flow.enqueue_many("part.make", (NewJob({"n": n}, delay="1h") for n in range(3)))
        join = flow.enqueue("report.join", {"id": 7}, after=parts, on_failure="run")

    shown = run("flow", "show", "report-7")
    assert shown.code == 0
    head, _, _, *rows = shown.out.splitlines()
    assert head == "report-7: running"
    assert [row.split() for row in rows] == [
        ["0", "part.make", "3", "block", "3", "waiting"],
        ["1", "report.join", "1", "0", "run", "1", "waiting"],
        [],
        ["critical", "path"],
        ["stage", "job", "waited", "ran", "state"],
        ["─" * len(rows[5])],
        ["0", f"part.make/{parts[0].id}", "waiting"],
        ["1", f"report.join/{join.id}", "waiting"],
    ]
    shown = run("flow", "show", "report-7", "--json").json
    assert [one["id"] for one in shown.pop("times")["path"]] == [parts[0].id, join.id]
    assert shown == {
        "name": "report-7",
        "state": "running",
        "jobs": 4,
        "stages": [
            {"topic": "part.make", "jobs": 3, "after": [], "on_failure": "block", "counts": {"waiting": 3}},
            {"topic": "report.join", "jobs": 1, "after": [0], "on_failure": "run", "counts": {"waiting": 1}},
        ],
    }

    assert run("flow", "cancel", "report-7").out == "cancelled\n"
    assert queue.stats("part.make").topics["part.make"].groups["default"].delayed == 0


def test_there_is_none(run: Run) -> None:
    for command in ("show", "cancel"):
        result = run("flow", command, "f")
        assert result.code == 1
        assert "no flow 'f'" in result.out
    assert run("flow", "show", "f", "--json").json is None
