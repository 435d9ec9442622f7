"""Every command, for people and as JSON, and its exit code."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from streamdq import JobState, NewJob, Queue, Worker
from streamdq.cli import app as cli
from streamdq.cli.root import SECTIONS
from tests.cli.conftest import Run
from tests.servers import Server
from tests.waiting import HANG_S


def test_enqueue_says_where_the_job_is_and_when_it_is_due(run: Run, queue: Queue) -> None:
    result = run("enqueue", "order.close", '{"order_id": 42}', "--delay", "30m", "--id", "order-42")

    job = queue.get("order.close", "order-42")
    assert result.code == 0
    assert job is not None
    assert job.body == {"order_id": 42}
    assert job.due_ms - job.created_ms == 30 * 60_000
    assert result.out == f"order.close / order-42, due {job.due:%Y-%m-%d %H:%M:%S.}{job.due_ms % 1000:03} UTC\n"


def test_enqueue_gives_the_job_all_its_options(run: Run) -> None:
    at = datetime.now(UTC) + timedelta(hours=3)

    result = run(
        "enqueue", "t", '"text"', "--at", at.isoformat(), "--ttr", "7s", "--retry", "1s 2s", "--expire", "1h",
        "--url", "https://merchant.example/paid", "--json",
    )  # fmt: skip

    job = result.json
    assert result.code == 0
    assert abs(job["due_ms"] - at.timestamp() * 1000) < 1
    assert (job["body"], job["ttr_ms"], job["retry"], job["expire_ms"]) == ("text", 7000, "1000ms 2000ms", 3_600_000)
    assert job["url"] == "https://merchant.example/paid"


@pytest.mark.parametrize(
    ("policy", "code", "body"), [("reject", 1, 1), ("keep", 0, 1), ("replace", 0, 2), ("postpone", 0, 2)]
)
def test_enqueue_of_a_taken_id(run: Run, queue: Queue, policy: str, code: int, body: int) -> None:
    queue.enqueue("t", 1, id="a", delay="1h")

    result = run("enqueue", "t", "2", "--id", "a", "--delay", "1h", "--on-conflict", policy)

    job = queue.get("t", "a")
    assert result.code == code
    assert job is not None
    assert job.body == body
    assert code == 0 or "pass --on-conflict keep, replace or postpone" in result.err


def test_enqueue_with_an_id_that_stays_taken(run: Run, queue: Queue) -> None:
    rule = ("--unique-for", "10m", "--unique-after", "finish", "--rate-of-id", "3/h")
    enqueue = ("enqueue", "t", "1", "--id", "a", *rule)
    assert run(*enqueue).code == 0
    queue.cancel("t", "a")

    refused, kept = run(*enqueue), run(*enqueue, "--on-conflict", "keep", "--json")

    assert refused.code == 1
    assert "'a' of topic 't' is taken until" in refused.err
    assert (kept.code, kept.json["state"], kept.json["body"]) == (0, "ended", None)


def test_get_shows_the_job_and_every_group(run: Run, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"])
    queue.enqueue("t", {"a": "[red]b"}, id="x", delay="1h")

    shown, read = run("get", "t", "x"), run("get", "t", "x", "--json")

    assert shown.code == read.code == 0
    assert '{"a": "[red]b"}' in shown.out
    assert "audit" in shown.out
    assert read.json["state"] == "delayed"
    assert read.json["body"] == {"a": "[red]b"}
    assert set(read.json["groups"]) == {"default", "audit"}


def test_get_shows_a_group_that_has_ended_a_job_and_not_done_it(run: Run, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"], create=True)
    queue.enqueue("t", 1, id="x")
    with queue.take("t", group="audit", timeout=HANG_S) as claim:
        assert claim
        claim.bury("spoilt")
    queue.purge("t", "x", group="audit")

    found = run("find", "t", "--state", "ended", "--group", "audit", "--where", "reason=purged", "--json").json

    assert [job["id"] for job in found["jobs"]] == ["x"]
    assert re.search(r"audit +ended .* purged", run("get", "t", "x").out)
    assert run("get", "t", "x", "--json").json["groups"]["audit"]["state"] == "ended"


def test_a_job_that_waits_for_others(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, id="p")
    queue.enqueue("t", 1, id="q", delay="1h")
    made = run("enqueue", "t", "2", "--id", "d", "--after", "t/p", "--after", "t/q", "--on-failure", "block")
    assert (made.code, made.out) == (0, "t / d, waits for other jobs\n")
    read = run("get", "t", "d", "--json").json
    assert (read["state"], read["due_ms"], read["groups"]["default"]["due_ms"]) == ("waiting", None, None)
    assert [one["outcome"] for one in read["waits_for"]["jobs"]] == [None, None]
    shown = run("get", "t", "d").out
    assert "2 jobs, of which 0 are done and 0 have failed (on failure: block)" in shown
    assert "t / p: has not ended" in shown
    for state, code in (("waiting", 0), ("blocked", 1)):
        found = run("find", "t", "--state", state)
        assert (found.code, "\nd " in found.out) == (code, code == 0), found
    assert run("find", "t", "--state", "waiting", "--due-until", "1h").code == 2
    assert "--after: 'p' is not TOPIC/ID" in run("enqueue", "t", "2", "--after", "p").err
    unknown = run("enqueue", "t", "2", "--after", "t/unknown")
    assert (unknown.code, "topic 't' has no job 'unknown'" in unknown.err) == (1, True)


def test_what_a_job_waits_for_in_topics_with_slashes(run: Run, queue: Queue) -> None:
    for topic in ("a/b", "c", "d", "d/e"):
        queue.configure(topic, create=True)
    for topic, id, text in (("a/b", "x/y", "a/b/x/y"), ("c", "x/y", "c/x/y"), ("a/b", "z", "a/b/z")):
        queue.enqueue(topic, 1, id=id, delay="1h")
        assert run("enqueue", "t", "2", "--id", text, "--after", text).code == 0, text
        found = queue.dependencies("t", text)
        assert found is not None
        assert [(one.topic, one.id) for one in found.jobs] == [(topic, id)]
    unclear = run("enqueue", "t", "2", "--after", "d/e/x")
    assert (unclear.code, "--after: 'd/e/x' may be of d and d/e" in unclear.err) == (2, True)
    assert run("enqueue", "t", "2", "--after", "new/x/y").code == 1


def test_get_shows_the_ttr_and_retries_that_apply(run: Run, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"], ttr="30s", retry="1s 2s")
    queue.enqueue("t", id="x")
    queue.enqueue("t", id="own", ttr="7s", retry="none")

    def shown(id: str) -> list[str]:
        return [" ".join(line.split()) for line in run("get", "t", id).out.splitlines()]

    assert {"ttr 30s", "retry 1s 2s"} <= set(shown("x"))
    assert {"ttr 7s", "retry none"} <= set(shown("own"))


def test_get_of_no_job_is_a_no(run: Run) -> None:
    assert run("get", "t", "x").code == 1
    result = run("get", "t", "x", "--json")
    assert (result.code, result.json) == (1, None)


def test_a_result_is_shown_as_json(run: Run, queue: Queue) -> None:
    assert run("topic", "configure", "t", "--result", "1d", "--create").code == 0
    queue.enqueue("t", 1, id="x")
    waits = run("result", "t", "x")
    assert (waits.code, "has not ended within 0" in waits.err) == (1, True)
    with queue.take("t") as claim:
        assert claim
        claim.finish(result={"pages": [1, None]})
    done = run("result", "t", "x", "--timeout", "5s")
    assert (done.code, done.json) == (0, {"pages": [1, None]})
    assert run("result", "t", "y").code == 1
    assert "results kept 1d" in run("topic", "configure", "t").out
    assert run("topic", "configure", "t", "--result", "default=0").code == 0
    assert run("result", "t", "x").code == 2


def test_abort_tells_what_it_found(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, id="x")
    claim = queue.take("t")
    assert claim

    claim.progress(0.4, "page 12")
    assert "40% page 12" in run("get", "t", "x").out
    shown = run("get", "t", "x", "--json").json
    first, alone = run("abort", "t", "x", "--json"), run("abort", "t", "x", "--group", "default")
    claim.fail("stopped")
    after = run("abort", "t", "x", "--json")

    assert shown["groups"]["default"]["progress"]["fraction"] == 0.4
    assert (first.code, first.json) == (0, {"result": "aborting"})
    assert "its handler is told to stop" in alone.out
    assert (after.code, after.json) == (1, {"result": "ended"})
    assert "'x' has ended" in run("abort", "t", "x").out
    assert queue.get("t", "x") is None


def test_cancel_answers_yes_once(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, id="x", delay="1h")

    first, second = run("cancel", "t", "x", "--json"), run("cancel", "t", "x", "--json")

    assert (first.code, first.json) == (0, {"cancelled": True})
    assert (second.code, second.json) == (1, {"cancelled": False})
    assert queue.get("t", "x") is None


def test_reschedule_moves_the_due_time(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, id="x", delay="1h")

    assert run("reschedule", "t", "x", "--at", "1900000000000").code == 0
    assert queue.get("t", "x").due_ms == 1900000000000  # type: ignore[union-attr]
    assert run("reschedule", "t", "nobody", "--delay", "1s").code == 1


def test_stats_count_by_topic_and_group(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, delay="1h")
    queue.enqueue("t", 1, delay="1h")
    queue.enqueue("other", 1, delay="1h")

    every, one, shown = run("stats", "--json"), run("stats", "t", "--json"), run("stats")

    assert every.json["delayed"] == 3
    assert one.json["topics"]["t"]["groups"]["default"]["delayed"] == 2
    assert list(one.json["topics"]) == ["t"]
    assert "other" in shown.out


def test_stats_of_more_topics_than_a_table_shows(run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.terminal.MOST_SHOWN", 2)
    for name in ("a-topic", "b-topic", "c-topic"):
        queue.configure(name, create=True)
    queue.enqueue("c-topic", 1)

    some, every, found = run("stats"), run("stats", "--all"), run("stats", "--json")

    assert re.findall(r"[abc]-topic", some.out) == ["c-topic", "a-topic"]
    assert "1 more topic: --all" in some.out
    assert re.findall(r"[abc]-topic", every.out) == ["a-topic", "b-topic", "c-topic"]
    assert list(found.json["topics"]) == ["a-topic", "b-topic", "c-topic"]


def test_stats_of_nothing_say_what_to_do(run: Run) -> None:
    assert "enqueue a job" in run("stats").out


def test_keys_that_have_most_to_do(run: Run, queue: Queue) -> None:
    queue.configure("t", key_concurrency=1)
    assert "no key" in run("topic", "keys", "t").out
    queue.enqueue_many("t", [NewJob(1, key=key) for key in ("a", "b", "b", "b", "a")])
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    with claim:
        assert run("topic", "keys", "t", "--json").json == [
            {"key": "b", "waiting": 2, "running": 0, "paused": False},
            {"key": "a", "waiting": 1, "running": 1, "paused": False},
        ]
        assert run("topic", "keys", "t", "--by", "running", "--limit", "1", "--json").json[0]["key"] == "a"
        assert "waiting" in run("topic", "keys", "t").out


def test_a_key_is_paused_and_resumed(run: Run, queue: Queue) -> None:
    queue.configure("t", key_concurrency=1)
    assert run("topic", "pause", "t", "--key", "a b", "--json").json == {"topic": "t", "key": "a b", "paused": True}
    assert "paused" in run("topic", "keys", "t", "--by", "paused").out
    assert "t, a b is resumed" in run("topic", "resume", "t", "--key", "a b").out
    assert run("topic", "keys", "t", "--by", "paused", "--json").json == []


def test_upcoming_counts_what_comes_due(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, delay="5m")
    queue.enqueue("t", 1, delay="5h")

    assert run("upcoming", "--json").json == {"1m": 0, "10m": 1, "1h": 1, "1d": 2}
    assert run("upcoming", "t", "--window", "6h", "--json").json == {"6h": 2}
    assert "10m" in run("upcoming").out
    assert "jobs due" in run("upcoming").out


def test_scale_tells_how_many_replicas(run: Run, queue: Queue) -> None:
    queue.enqueue_many("t", [NewJob(1, delay="5m") for _ in range(16)])
    found = run("scale", "t", "--attempt", "1m", "--slo", "1s", "--concurrency", "10", "--json").json
    assert (found["replicas_now"], found["replicas"]) == (0, 2)
    assert run("scale", "t", "--within", "1m", "--json").json["replicas"] == 0
    shown = run("scale", "t").out
    assert "replicas within 10m" in shown
    assert "not known" in shown
    assert shown.startswith("replicas now"), "it has no row of headings, which would be empty"
    assert "1m (as given)" in run("scale", "t", "--attempt", "1m").out


def bury(queue: Queue, id: str) -> None:
    queue.enqueue("t", 1, id=id)
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    claim.bury("no such [merchant]")


def test_dead_letters_are_listed_with_their_reason(run: Run, queue: Queue) -> None:
    bury(queue, "x")

    shown, read = run("dead", "list", "t"), run("dead", "list", "t", "--json")

    assert "no such [merchant]" in shown.out
    assert [job["id"] for job in read.json] == ["x"]
    assert read.json[0]["groups"]["default"]["reason"] == "buried"
    assert read.json[0]["groups"]["default"]["error"] == "no such [merchant]"


def test_a_dead_letter_is_kicked(run: Run, queue: Queue) -> None:
    bury(queue, "x")

    assert run("dead", "kick", "t", "x", "--json").json == {"kicked": 1}
    assert queue.get("t", "x").state is JobState.READY  # type: ignore[union-attr]
    assert run("dead", "kick", "t", "x").code == 1
    assert "dead kick: pass either" in run("dead", "kick", "t").err


def test_topics_and_the_dead_letters_of_all_are_listed(run: Run, queue: Queue) -> None:
    assert run("topic", "list").out == ""
    queue.configure("other", groups=["audit"])
    bury(queue, "x")

    assert run("topic", "list").out == "other\nt\n"
    assert run("topic", "list", "--json").json == ["other", "t"]
    assert [(job["topic"], job["id"]) for job in run("dead", "list", "--json").json] == [("t", "x")]
    assert re.search(r"\bt +x +1 +buried", run("dead", "list").out)
    assert run("dead", "list", "other").code == 2, "it has no group default"


def test_all_dead_letters_are_purged(run: Run, queue: Queue) -> None:
    bury(queue, "x")
    bury(queue, "y")

    assert run("dead", "purge", "t", "--all", "--json").json == {"purged": 2}
    assert queue.dead("t") == []
    assert "no dead letters" in run("dead", "list", "t").out


@pytest.mark.parametrize("command", ["kick", "purge"])
def test_dead_letters_are_not_touched_by_an_order_half_given(run: Run, queue: Queue, command: str) -> None:
    bury(queue, "x")

    assert run("dead", command, "t").code == 2
    assert run("dead", command, "t", "x", "--all").code == 2
    assert len(queue.dead("t")) == 1


def test_pause_holds_a_topic_until_resume(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, id="x")

    assert run("topic", "pause", "t", "--json").json == {"topic": "t", "paused": True}
    assert not queue.take("t", timeout=0)
    assert run("topic", "resume", "t", "--json").json == {"topic": "t", "paused": False}
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    claim.finish()


def test_configure_changes_what_is_given_and_shows_all(run: Run) -> None:
    run("topic", "configure", "t", "--ttr", "9s", "--max-deliveries", "3", "--rate", "50")

    result = run("topic", "configure", "t", "--retry", "1s 2s", "--group", "default", "--group", "audit", "--json")

    settings = result.json
    assert (settings["ttr_ms"], settings["max_deliveries"], settings["rate"]) == (9000, 3, 50)
    assert settings["retry"] == "1s 2s"
    assert "1000ms" not in run("topic", "configure", "t").out, "people see it as it was given: 1s 2s"
    assert set(settings["groups"]) == {"default", "audit"}
    assert "50 jobs/s" in run("topic", "configure", "t").out


def test_retry_schedules_are_shown_as_they_are_written(run: Run, queue: Queue, redis_server: Server) -> None:
    queue.configure("t", groups=["default"])
    worker = Worker(redis_server.url)
    worker.handler("t", retry="15s 3m 10m")(print)
    worker.run(burst=True)
    queue.enqueue("t", 1, delay="1h", id="j", retry="0 90s")

    assert "default (retry 15s 3m 10m)" in run("topic", "configure", "t").out
    assert "0 1m30s" in run("get", "t", "j").out


def test_audit_balances(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, delay="1h")

    shown, read = run("audit"), run("audit", "--json")

    assert shown.code == read.code == 0
    assert "balanced" in shown.out
    assert read.json["left"] == 1
    assert read.json["balances"][0]["imbalance"] == 0


@pytest.fixture
def kept(redis_server: Server) -> Iterator[None]:
    """With an append-only file."""
    with redis_server.client() as client:
        client.config_set("appendonly", "yes")
        yield
        client.config_set("appendonly", "no")


@pytest.mark.usefixtures("kept")
def test_audit_and_doctor_find_a_job_that_was_lost(run: Run, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1, id="lost", delay="1h")
    with redis_server.client() as client:
        assert client.delete("streamdq:{t:0}:bucket") == 1

    shown, read, doctor = run("audit", "t"), run("audit", "t", "--json"), run("doctor", "--json")

    assert shown.code == read.code == doctor.code == 1
    assert not read.json["balanced"]
    assert "not balanced" in shown.out
    assert [found["verdict"] for found in doctor.json].count("problem") == 1


def test_doctor_says_what_to_change(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, delay="1h")

    shown, read = run("doctor"), run("doctor", "--json")

    assert shown.code == read.code == 1, "a restart of this Redis loses the job"
    assert "CONFIG SET appendonly yes" in shown.out
    assert [found["what"] for found in read.json if found["verdict"] == "problem"] == ["no append-only file"]
    assert [found["what"].partition(":")[0] for found in read.json if found["verdict"] == "advice"] == [
        "maxmemory is not set",
        "no mover is active",
    ]


@pytest.mark.usefixtures("kept")
def test_doctor_is_content_with_advice(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, delay="1h")

    output = run("doctor", "--json")

    assert output.code == 0
    assert {found["verdict"] for found in output.json} == {"ok", "advice"}


@pytest.mark.usefixtures("kept")
def test_doctor_finds_jobs_that_stand_still(run: Run, redis_server: Server) -> None:
    with Queue(redis_server.url) as queue, redis_server.client() as client:
        queue.enqueue("t", 1, delay="1h")
        (member,) = client.zrange("streamdq:{t:0}:bucket", 0, -1)
        client.zadd("streamdq:{t:0}:bucket", {member: 1})  # as if it had long been due

    output = run("doctor", "--json")

    assert output.code == 1
    assert [found["what"] for found in output.json if found["verdict"] == "problem"] == [
        "no mover is active, and jobs are due"
    ]


@pytest.mark.parametrize("id", ["-x", "-5", "-json", "-", "--json", "--x"])
def test_ids_that_begin_with_a_dash(run: Run, queue: Queue, id: str) -> None:
    before = ("--",) if id.startswith("--") else ()
    assert run("enqueue", "t", "1", "--id", id, "--delay", "1h").code == 0
    assert run("get", "--json", "t", *before, id).json["id"] == id
    assert run("reschedule", "--delay", "0", "t", *before, id).code == 0
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    claim.bury("no")
    assert run("dead", "kick", "t", *before, id).code == 0
    assert run("cancel", "t", *before, id).code == 0


def test_a_misspelt_option_is_no_id(run: Run) -> None:
    for command in (("get", "t", "--jsno"), ("dead", "purge", "t", "--al"), ("cancel", "t", "x", "--jsno")):
        result = run(*command)
        assert result.code == 2
        assert f"No such option: {command[-1]}" in result.err


def test_json_may_stand_before_the_command(run: Run) -> None:
    run("enqueue", "t", "1", "--id", "a", "--delay", "1h")

    assert run("--json", "get", "t", "a").json == run("get", "t", "a", "--json").json
    assert run("--json", "--namespace", "none", "stats").json["delayed"] == 0
    assert run("--json", "dead", "list", "t").json == []
    assert run("--json", "get", "--", "t", "a").json["id"] == "a"


def test_other_options_of_commands_belong_behind_them(run: Run) -> None:
    for option in ("--limit", "--all", "--show-payload"):
        early = run(option, "dead", "list", "t")
        known = option != "--show-payload"
        assert early.code == 2
        assert (f"{option} is an option of commands: write it after the command" in early.err) == known
        assert (f"No such option: {option}" in early.err) != known


@pytest.mark.parametrize("arguments", [["enqueue", "t", "1", "--delay"], ["analyze", "dump", "--output"], ["--url"]])
def test_an_option_without_its_value_is_wrong_usage(run: Run, arguments: list[str]) -> None:
    found = run(*arguments)
    assert found.code == 2
    assert f"Option '{arguments[-1]}' requires an argument; see streamdq" in found.err


def test_a_misspelt_topic_is_not_a_missing_job(run: Run) -> None:
    run("enqueue", "order.close", "1", "--id", "a", "--delay", "1h")

    asked = run("get", "order.clsoe", "a")
    assert (asked.code, "did you mean 'order.close'?" in asked.out) == (1, True)
    assert run("get", "order.clsoe", "a", "--json").out == "null\n"
    for command in (("cancel",), ("abort",), ("reschedule", "--delay", "1h"), ("history",)):
        result = run(*command, "order.clsoe", "a")
        assert (result.code, result.out) == (2, "")
        assert "did you mean 'order.close'?" in result.err
    missing = run("get", "order.close", "b")
    output = "it has ended, or never existed; for past attempts: streamdq history order.close b"
    assert (missing.code, missing.out) == (1, f"no job 'b' in 'order.close': {output}\n")


def test_url_and_namespace_come_from_the_environment(
    run: Run, redis_server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--namespace", "mine", "enqueue", "t", "1", "--delay", "1h")
    monkeypatch.setenv("STREAMDQ_URL", redis_server.url)
    monkeypatch.setenv("STREAMDQ_NAMESPACE", "mine")
    capsys.readouterr()

    assert cli.run(["stats"]) == 0
    assert " 1 " in capsys.readouterr().out
    with Queue() as queue, Queue(namespace="other") as other:
        assert (queue.stats().delayed, other.stats().delayed) == (1, 0)
    assert (Worker().namespace, Worker(namespace="other").namespace) == ("mine", "other")
    monkeypatch.setenv("STREAMDQ_NAMESPACE", "")
    assert Worker().namespace == "streamdq"


@pytest.mark.parametrize(
    "command",
    [
        "enqueue", "get", "cancel", "abort", "reschedule", "stats", "upcoming", "scale", "dead list", "dead kick",
        "dead purge", "topic keys", "topic pause", "topic resume", "topic configure", "topic delete", "jobs", "history",
        "audit", "doctor", "worker", "mover", "demo", "mcp", "serve", "token", "dump", "compact", "forget-dump",
        "simulate-history",
    ],
)  # fmt: skip
def test_help_teaches_every_command(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert cli.run([*command.split(), "--help"]) == 0
    assert "Usage: streamdq" in capsys.readouterr().out


def test_help_names_exit_codes_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert "130  interrupted" in text
    assert "streamdq enqueue order.close '{\"order_id\": 42}' --delay 30m --id order-42" in text


@pytest.mark.parametrize("arguments", [[], ["dead"]])
def test_no_command_gets_the_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert ("\nCommands:\n" if arguments else "\nJobs:\n  enqueue ") in err


def test_a_topic_is_deleted(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, delay="1h")
    refused = run("topic", "delete", "t")
    assert refused.code == 1
    assert "still holds jobs: let every group finish them first, or delete them with --force\n" in refused.err
    assert run("topic", "delete", "t", "--force", "--json").json == {"topic": "t", "deleted": True}
    assert run("topic", "delete", "t").code == 2
    assert run("stats", "--json").json["topics"] == {}


# -- durability


@pytest.mark.parametrize(
    "command",
    [
        ("enqueue", "t", "1"),
        ("cancel", "t", "a"),
        ("abort", "t", "a"),
        ("reschedule", "t", "a", "--delay", "1h"),
        ("enqueue", "t", "--file", "{file}"),
    ],
)
def test_what_redis_can_not_confirm(run: Run, queue: Queue, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "jobs").write_text("1\n2\n")
    queue.enqueue("t", 1, id="a", delay="1h")
    words = [word.format(file=tmp_path / "jobs") for word in command]

    refused = run(*words, "--durable", "disk")
    wrong = run(*words, "--durable", "ram")

    assert (refused.code, wrong.code) == (3, 2)
    assert "append-only file" in refused.err
    assert "'memory', 'disk' and 'replicas:N'" in wrong.err
    assert queue.stats("t").topics["t"].enqueued == 1
    assert run(*words, "--durable", "memory").code == 0


# -- what the root does


def test_every_command_is_in_one_section_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    root: Any = typer.main.get_command(cli.app)
    assert sorted(name for names in root.sections().values() for name in names) == sorted(root.commands)
    assert root.sections().keys() == SECTIONS.keys()
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{section}:\n" in shown for section in SECTIONS)
    assert "--install-completion" in shown
    assert not [line for line in shown.splitlines() if line.endswith("...") and "COMMAND" not in line], "cut off"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "{url}", "--namespace", "ns", "dead", "list", "t"],
        ["dead", "list", "t", "--url", "{url}", "--namespace=ns"],
        ["dead", "--url={url}", "list", "--namespace", "ns", "t"],
        ["--url", "redis://127.0.0.1:1", "dead", "list", "t", "--url", "{url}", "--namespace", "ns"],
    ],
)
def test_global_options_go_before_or_after_the_command(
    redis_server: Server, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with Queue(redis_server.url, "ns") as queue:
        queue.configure("t", create=True)
    assert cli.run([word.format(url=redis_server.url) for word in arguments]) == 0
    assert capsys.readouterr().out == "no dead letters\n"


def test_the_url_of_enqueue_is_the_one_to_call_back(run: Run) -> None:
    made = run("enqueue", "t", "1", "--delay", "1h", "--url", "https://shop.example/paid", "--json").json
    assert made["url"] == "https://shop.example/paid"
    assert run("get", "t", "--", "--url").code == 1, "it is an id"


@pytest.mark.thorough
def test_completion_knows_the_commands() -> None:
    words = {"_STREAMDQ_COMPLETE": "complete_bash", "COMP_WORDS": "streamdq topic de", "COMP_CWORD": "2"}
    code = "from streamdq.cli import main; main()"
    env = {**os.environ, **words}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert shown.stdout.split() == ["delete"]


def test_times_are_shown_by_local_clocks_too(
    run: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(time.tzset)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    output = run("enqueue", "t", "1", "--id", "a", "--at", "2030-01-31T22:00:00+00:00").out
    assert output == "t / a, due 2030-01-31 22:00:00.000 UTC (Fri 07:00:00 JST)\n"
    assert "2030-01-31 22:00:00.000 UTC (Fri 07:00:00 JST)" in run("get", "t", "a").out


# -- lists


def test_jobs_lists_those_in_a_state(run: Run, queue: Queue) -> None:
    queue.enqueue("t", {"n": 1}, id="later", delay="2h")
    queue.enqueue("t", {"n": 2}, id="sooner", delay="1h")
    queue.enqueue("t", {"n": 3}, id="now")

    delayed, ready = run("jobs", "t", "--state", "delayed"), run("jobs", "t", "--state", "ready", "--json")

    assert delayed.out.index("sooner") < delayed.out.index("later")
    assert [(job["id"], job["state"], job["body"]) for job in ready.json] == [("now", "ready", {"n": 3})]
    assert len(run("jobs", "t", "--json").json) == 3
    assert len(run("jobs", "t", "--limit", "2", "--json").json) == 2
    assert run("jobs", "t", "--state", "dead", "--group", "default").out == "no dead jobs in t for group default\n"
    assert run("jobs", "t", "--state", "lost").code == 2
    assert run("jobs", "never.heard.of").code == 2


def test_history_shows_what_became_of_a_job(run: Run, queue: Queue) -> None:
    queue.configure("t", shards=3, create=True)
    for id in ("a", "b"):
        queue.enqueue("t", 1, id=id)
    for _ in range(2):
        with queue.take("t", timeout=HANG_S) as claim:
            assert claim
            if claim.job.id == "b":
                claim.bury("spoilt")
    queue.enqueue("t", 1, id="c", delay="1h")
    queue.cancel("t", "c")

    done, dead = run("history", "t", "a"), run("history", "t", "b", "--json")

    assert (done.code, dead.code) == (0, 0)
    assert re.search(r" UTC +done +default +1 ", done.out)
    assert [(row["event"], row["reason"]) for row in dead.json] == [("dead", "buried")]
    assert "cancelled" in run("history", "t", "c").out
    assert run("history", "t", "d").code == 1
    assert run("history", "never.heard.of", "d").code == 2


def test_history_shows_what_failed_in_each_attempt(run: Run, queue: Queue) -> None:
    queue.enqueue("t", 1, id="j", retry="0")
    for message in ("first\x1b[2J", "second"):
        claim = queue.take("t", timeout=HANG_S)
        assert claim
        try:
            raise ValueError(message)
        except ValueError as error:
            claim.fail(error)

    shown, traced, output = (run("history", "t", "j", *more) for more in ((), ("--tracebacks",), ("--json",)))

    assert "ValueError: first" in shown.out
    assert "exhausted: ValueError: second" in shown.out
    assert "Traceback" not in shown.out
    assert traced.out.count("Traceback (most recent call last):") == 2
    assert "attempt 1, group default" in traced.out
    assert "in test_history_shows_what_failed_in_each_attempt" in traced.out
    assert "\x1b[2J" not in traced.out
    assert [row["message"] for row in output.json] == ["ValueError: first [2J", "ValueError: second"]
    assert all(row["traceback"].endswith(f"\n{row['message']}") for row in output.json)


@pytest.mark.usefixtures("kept")
def test_doctor_finds_groups_that_nobody_serves(run: Run, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"], create=True)
    queue.enqueue("t", 1)
    with queue.take("t", timeout=HANG_S) as claim:
        assert claim

    output = run("doctor", "--json")
    queue.pause("t")

    assert output.code == 1
    assert [found["what"] for found in output.json if found["verdict"] == "problem"] == [
        "1 ready in topic t, and group audit has no consumer"
    ]
    assert run("doctor").code == 0, "it is paused"
