"""streamdq find: what it shows, asks and does."""

from __future__ import annotations

import io
import sys

import pytest
import typer

from streamdq import InvalidInput, NewJob, Queue
from tests.cli.conftest import Run
from tests.waiting import HANG_S


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def jobs(queue: Queue) -> Queue:
    queue.enqueue_many("t", [NewJob({"user": n % 3}, id=f"j{n}", delay=f"{n + 1}m") for n in range(9)])
    return queue


def test_it_shows_how_many_match_and_the_first(run: Run, jobs: Queue) -> None:
    shown = run("find", "t", "--where", "body.user=1")
    assert shown.code == 0
    assert all(id in shown.out for id in ("j1", "j4", "j7"))
    assert "3 jobs found\n" in shown.out
    assert "j0" not in shown.out
    shown = run("find", "t", "--show", "2")
    assert "9 jobs found, 7 of them not shown" in shown.out
    assert run("find", "t", "--limit", "4", "--show", "0").out == "4 jobs found\n"
    assert len(list(jobs.find("t"))) == 9


@pytest.mark.parametrize("state", [(), ("--state", "delayed")])
def test_those_due_first_are_shown(run: Run, queue: Queue, state: tuple[str, ...]) -> None:
    """Of all shards, though each is read by itself."""
    queue.configure("t", shards=3)
    ids = [f"j{n:03}" for n in range(60)]
    queue.enqueue_many("t", [NewJob(n, id=id, delay=3600 + n) for n, id in enumerate(ids)])

    listed = run("jobs", "t", "--limit", "5", *state, "--json").json
    found = run("find", "t", "--show", "5", *state, "--json").json

    assert [job["id"] for job in listed] == [job["id"] for job in found["jobs"]] == ids[:5]
    assert found["found"] == 60
    assert run("find", "t", "--limit", "7", "--show", "5", *state, "--json").json["found"] == 7
    search = queue.find("t")
    next(iter(search))
    with pytest.raises(InvalidInput, match="search anew"):
        search.soonest()


def test_all_topics_are_searched(run: Run, queue: Queue) -> None:
    for topic, minutes in (("a", 3), ("b", 1), ("c", 2)):
        queue.configure(topic, groups=["default", *(["audit"] if topic == "c" else [])])
        queue.enqueue(topic, {"user": 7}, id=f"of-{topic}", delay=f"{minutes}m")
        queue.enqueue(topic, {"user": 8}, delay="1h")

    found = run("find", "--where", "body.user=7", "--show", "2", "--json").json
    assert ([job["id"] for job in found["jobs"]], found["found"], found["looked"]) == (["of-b", "of-c"], 3, 6)
    shown = run("find", "--where", "body.user=7").out
    assert [line.split()[:2] for line in shown.splitlines() if "of-" in line] == [
        ["b", "of-b"], ["c", "of-c"], ["a", "of-a"],
    ]  # fmt: skip
    assert run("find", "--group", "audit", "--json").json["found"] == 2
    assert run("find", "--limit", "2", "--json").json["found"] == 2
    done = run("find", "--where", "body.user=7", "--cancel", "--yes")
    assert done.out.splitlines()[-1] == "3 cancelled"


def test_no_match_is_exit_code_1(run: Run, jobs: Queue) -> None:
    for arguments in (["--state", "dead"], ["--key", "k"], ["--due-from", "1h"], ["--id-prefix", "x"]):
        shown = run("find", "t", *arguments)
        assert (shown.code, shown.out) == (1, "0 jobs found\n")
    assert run("find", "t", "--where", "body.user=7", "--cancel", "--yes").code == 1
    assert jobs.find("t").count() == 9


def test_it_acts_on_what_it_has_shown(run: Run, jobs: Queue) -> None:
    done = run("find", "t", "--where", "body.user=1", "--due-until", "6m", "--cancel", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 cancelled")
    done = run("find", "t", "--id-prefix", "j8", "--reschedule", "1d", "-y")
    assert done.out.splitlines()[-1] == "1 rescheduled"
    assert [job.id for job in jobs.find("t", state="delayed", due=("23h", None))] == ["j8"]
    done = run("find", "t", "--id-prefix", "j8", "--reschedule-at", "2030-01-31T09:00:00Z", "-y")
    assert done.code == 0
    job = jobs.get("t", "j8")
    assert job is not None
    assert job.due.year == 2030
    left = run("find", "t", "--purge", "--yes")
    assert (left.code, left.out.splitlines()[-1]) == (1, "0 purged; left alone: 7 in another state")


def test_dead_letters_are_kicked_and_purged(run: Run, queue: Queue) -> None:
    for id in ("a", "b"):
        queue.enqueue("t", 1, id=id)
        claim = queue.take("t", timeout=HANG_S)
        assert claim
        claim.bury("card expired")
    done = run("find", "t", "--state", "dead", "--id-prefix", "a", "--kick", "--yes")
    assert done.out.splitlines()[-1] == "1 kicked"
    done = run("find", "t", "--where", "error=card expired", "--state", "dead", "--purge", "--yes")
    assert done.out.splitlines()[-1] == "1 purged"
    assert [job.id for job in queue.find("t")] == ["a"]


def test_json_is_one_value(run: Run, jobs: Queue) -> None:
    shown = run("find", "t", "--where", "body.user=2", "--show", "1", "--json")
    assert shown.json["found"] == 3
    assert shown.json["looked"] == 9
    (job,) = shown.json["jobs"]
    assert (job["topic"], job["body"]) == ("t", {"user": 2})
    done = run("find", "t", "--where", "body.user=2", "--cancel", "--yes", "--json")
    assert done.json["acted"] == {"action": "cancel", "done": 3, "changed": 0, "gone": 0, "refused": 0}
    assert run("find", "t", "--state", "dead", "--json").json["found"] == 0
    assert jobs.find("t").count() == 6


def test_it_asks_first(run: Run, jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = run("find", "t", "--cancel")
    assert nobody.code == 2
    assert "not a terminal; to confirm, pass --yes to cancel 9 jobs" in nobody.err
    monkeypatch.setattr(sys, "stdin", Terminal())
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr(typer, "confirm", confirm)
    assert run("find", "t", "--cancel").code == 130
    assert jobs.find("t").count() == 9
    assert run("find", "t", "--cancel").code == 0
    assert asked == ["cancel 9 jobs of t?"] * 2
    assert jobs.find("t").count() == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cancel", "--kick"], "pass only one of --cancel, --kick"),
        (["--state", "asleep"], "state: 'asleep' is not one of"),
        (["--where", "nix=1"], "'nix' is not a field"),
        (["--where", "body.user"], "can't read 'body.user'"),
        (["--due-from", "soon"], "soon"),
        (["--reschedule", "never", "--yes"], "never"),
        (["--group", "none"], "none"),
        (["--where", "id=\udcff"], "can't read 'id=\\udcff'"),
        (["--where", "body.user=\udcff"], "can't read"),
        (["--show", "99999999999999999999"], "--show"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_done(run: Run, jobs: Queue, arguments: list[str], complaint: str) -> None:
    refused = run("find", "t", *arguments)
    assert refused.code == 2
    assert complaint in refused.err
    assert jobs.find("t", state="delayed").count() == 9


@pytest.mark.parametrize("more", [["foo"], ["1h", "--reschedule-at", "2030-01-01T00:00Z"]])
def test_a_bad_time_is_refused_before_the_search(run: Run, jobs: Queue, more: list[str]) -> None:
    """Though no job matches."""
    refused = run("find", "t", "--id-prefix", "none-", "--reschedule", *more)
    assert refused.code == 2
    assert not refused.out
    assert jobs.find("t", state="delayed").count() == 9
