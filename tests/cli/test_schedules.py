"""The commands on schedules."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from tests.cli.conftest import Run

ACME = (
    "schedule", "add", "report.send", '{"for": "{due}"}', "--id", "acme", "--cron", "0 9 * * 1-5", "--tz",
    "Europe/Paris",
)  # fmt: skip


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_add_shows_the_next_five_times_in_its_zone_and_in_utc(run: Run, queue: Queue) -> None:
    result = run(*ACME)

    made = queue.get_schedule("report.send", "acme")
    assert result.code == 0
    assert made.body == {"for": "{due}"}
    head, *times, last = [line for line in result.out.splitlines() if line.strip(" ─")]
    assert head == "report.send / acme  At 09:00 on Monday through Friday, Europe/Paris"
    assert "Europe/Paris" in times[0]
    assert "UTC" in times[0]
    assert len(times) == 6
    for line, ms in zip(times[1:], made.next_ms, strict=True):
        assert " 09:00:00 CE" in line
        assert f"{at(ms):%a %Y-%m-%d %H:%M:%S} UTC" in line
    assert last == "added"


def test_add_takes_every_argument(run: Run) -> None:
    given = (
        "schedule", "add", "t", "--every", "10m", "--jitter", "30s", "--start", "2030-01-01T00:00:00Z", "--until",
        "2030-02-01T00:00:00Z", "--overlap", "queue", "--catch-up", "1h", "--ttr", "5s", "--retry", "1s 2s", "--url",
        "https://shop.example/hook", "--expire", "1h", "--body-version", "2", "--json",
    )  # fmt: skip
    added = run(*given).json

    assert added["result"] == "added"
    assert added["before"] is None
    made = added["schedule"]
    assert (made["topic"], made["id"], made["state"], made["body"]) == ("t", "default", "active", {})
    assert (made["every_ms"], made["cron"], made["words"]) == (600_000, None, "Every 10m")
    assert (made["jitter_ms"], made["overlap"], made["catch_up"]) == (30_000, "queue", "3600000ms")
    assert (made["start_ms"], made["until_ms"]) == (1_893_456_000_000, 1_896_134_400_000)
    assert (made["ttr_ms"], made["retry"], made["expire_ms"]) == (5000, "1000ms 2000ms", 3_600_000)
    assert made["version"] == 2
    assert len(made["next_ms"]) == 5
    assert run("schedule", "show", "t", "--json").json == made
    assert run(*given).json == {"result": "unchanged", "before": made, "schedule": made}

    shown = run("schedule", "show", "t").out
    for words in ("every 10m", "queue", "1h", "1s 2s", "https://shop.example/hook", "2030-01-01", "0 missed"):
        assert words in shown


def test_a_dry_run_writes_nothing(run: Run, queue: Queue) -> None:
    shown, read = run(*ACME, "--dry-run"), run(*ACME, "--dry-run", "--json").json

    assert shown.code == 0
    assert shown.out.endswith("nothing was written; it would be added\n")
    assert read["result"] == "dry-run"
    assert len(read["schedule"]["next_ms"]) == 5
    assert queue.stats().topics == {}

    run(*ACME)
    made = queue.get_schedule("report.send", "acme")
    assert "it would be unchanged" in run(*ACME, "--dry-run").out
    assert "it would be changed" in run(*ACME, "--until", "1900000000000", "--dry-run").out
    assert queue.get_schedule("report.send", "acme") == made


def test_a_change_shows_the_times_before_and_after(run: Run, queue: Queue) -> None:
    queue.schedule("t", {}, cron="0 9 * * *", tz="Asia/Tokyo")

    result = run("schedule", "add", "t", "--cron", "30 18 * * *", "--tz", "Europe/Paris")

    assert [result.out.count(time) for time in (" 09:00:00 JST", " 18:30:00 CE")] == [5, 5]
    assert result.out.index("before: Asia/Tokyo") < result.out.index("after: Europe/Paris")
    assert result.out.endswith("\nchanged\n")
    assert queue.get_schedule("t").text == "30 18 * * *"


@pytest.mark.parametrize(
    ("change", "says"), [(("--until", "1600000000000"), "no time follows"), (("--every", "2h"), "it is paused")]
)
def test_it_says_why_there_is_no_next_time(run: Run, queue: Queue, change: tuple[str, ...], says: str) -> None:
    queue.schedule("t", {}, every="1h")
    if "paused" in says:
        queue.pause_schedule("t")
    given = change if "--every" in change else ("--every", "1h", *change)
    assert says in run("schedule", "add", "t", *given, "--dry-run").out


def test_list_shows_the_schedules_of_a_topic_or_of_all(run: Run, queue: Queue) -> None:
    queue.schedule("t", {}, id="a", cron="0 9 * * *", tz="Europe/Paris")
    queue.schedule("t", {}, id="b", every="10m")
    queue.schedule("other", {}, every="1d")
    queue.pause_schedule("t", "b")

    read = run("schedule", "list", "--json").json
    assert [(one["topic"], one["id"]) for one in read] == [("other", "default"), ("t", "a"), ("t", "b")]
    assert [one["id"] for one in run("schedule", "list", "t", "--json").json] == ["a", "b"]
    shown = run("schedule", "list").out
    following = queue.get_schedule("t", "a").next_ms[0]
    for words in (
        "0 9 * * *",
        "Europe/Paris",
        f"{at(following):%Y-%m-%d %H:%M:%S}",
        "every 10m",
        "paused",
        "other",
        "2 active, 1 paused",
    ):
        assert words in shown


def test_without_schedules_it_says_so(run: Run) -> None:
    result = run("schedule", "list")
    assert (result.code, result.out) == (0, "no schedules\n")


def test_pause_resume_trigger_and_remove(run: Run, queue: Queue) -> None:
    queue.schedule("t", {"at": "{due}"}, id="a", every="1h")

    paused, resumed = run("schedule", "pause", "t", "a"), run("schedule", "resume", "t", "a", "--json")
    assert paused.out == "t / a is paused\n"
    assert resumed.json["state"] == "active"
    job = run("schedule", "trigger", "t", "a", "--json").json
    assert job["id"].startswith("a@")
    assert queue.get("t", job["id"]) is not None
    assert "due" in run("schedule", "trigger", "t", "a").out
    assert run("schedule", "remove", "t", "a").out == "removed\n"
    again = run("schedule", "remove", "t", "a", "--json")
    assert (again.code, again.json) == (1, {"removed": False})


def test_backfill_says_how_many(run: Run, queue: Queue) -> None:
    queue.schedule("t", {}, id="a", cron="0 */6 * * *")
    span = ("schedule", "backfill", "t", "a", "--start", "2026-01-13T00:00:00Z", "--end", "2026-01-14T00:00:00Z")
    assert run(*span).out == "4 jobs enqueued\n"
    assert run(*span, "--json").json == {"enqueued": 0}


SHOP = """
from streamdq import Worker

worker = Worker()

@worker.schedule("t", id="here", every="1h")
async def handler(body: dict) -> None: ...
"""


def test_a_worker_that_prunes(run: Run, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old_shop.py").write_text(SHOP.replace("here", "gone"))
    (tmp_path / "new_shop.py").write_text(SHOP)
    for module in ("old_shop", "new_shop"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run("worker", "old_shop:worker", "--burst", "--log-level", "error").code == 0
    assert run("worker", "new_shop:worker", "--burst", "--log-level", "error").code == 0
    assert [one.id for one in queue.schedules()] == ["gone", "here"]
    assert run("worker", "new_shop:worker", "--burst", "--log-level", "error", "--prune").code == 0
    assert [one.id for one in queue.schedules()] == ["here"]
    assert "declared  by a worker" in run("schedule", "show", "t", "here").out


@pytest.mark.parametrize("command", ["show", "pause", "resume", "trigger", "remove"])
def test_no_such_schedule_is_a_no_and_no_such_topic_wrong_usage(run: Run, queue: Queue, command: str) -> None:
    queue.configure("known", create=True)
    missing, unknown = run("schedule", command, "known", "x"), run("schedule", command, "unknown", "x")
    assert (missing.code, unknown.code) == (1, 2)
    assert "topic 'known' has no schedule 'x'" in missing.err + missing.out
    assert "no topic 'unknown'" in unknown.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("t",), "pass either cron or every"),
        (("t", "--cron", "x"), "cron: can't read 'x'"),
        (("t", "--every", "1h", "--tz", "Mars"), "tz: 'Mars'"),
        (("t", "--every", "1h", "--start", "soon"), "start: can't read 'soon'"),
        (("t", "hello", "--every", "1h"), "; write a text with its quotes: '\"hello\"'"),
        (("t", "--every", "1h", "--overlap", "never"), "overlap"),
        (("t", "--every", "1h", "--id", "x" * 201), "a schedule's has at most 200 bytes"),
        (("a b", "--every", "1h"), "topic"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_bad_input_is_wrong_usage(
    run: Run, queue: Queue, arguments: tuple[Any, ...], says: str, dry: tuple[str, ...]
) -> None:
    result = run("schedule", "add", *arguments, *dry)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert queue.stats().topics == {}
