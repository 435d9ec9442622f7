"""The benchmarks' own judgement, and small workloads on a real server."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import bare_calls as bare
from benchmarks.__main__ import WORKLOADS, environment, main, report, run
from benchmarks.figures import Figure
from benchmarks.harness import NAMESPACE, SHARD, TOPIC, Bench, body
from streamdq import Queue
from streamdq.embedded.binary import find_server
from tests.conftest import BINARIES
from tests.turns import others_later

needs_redis = pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")


@pytest.fixture
def bench() -> Bench:
    return Bench(find_server(), scale=0.001)


@pytest.mark.parametrize(
    ("bounds", "met"),
    [
        ({}, None),
        ({"at_least": 100}, True),
        ({"at_least": 101}, False),
        ({"at_most": 100}, True),
        ({"at_most": 99}, False),
        ({"ratio_at_least": 0.5}, True),
        ({"ratio_at_least": 0.6}, False),
        ({"ratio_at_most": 0.5}, True),
        ({"ratio_at_most": 0.4}, False),
        ({"at_least": 50, "ratio_at_least": 0.6}, False),
        ({"at_least": 101, "ratio_at_least": 0.5}, False),
    ],
)
def test_a_figure_is_met_when_every_bound_is_kept(bounds: dict[str, Any], met: bool | None) -> None:
    assert Figure("w", "x", 100, "/s", floor=200, **bounds).met is met


def test_wrong_arguments_and_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["no-such"])
    assert refused.value.code == 2
    assert "no workload no-such" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(WORKLOADS)


@needs_redis
def test_a_workload_that_fails_is_reported_and_the_next_one_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_bench: Bench) -> list[Figure]:
        raise RuntimeError("it broke")

    monkeypatch.setitem(WORKLOADS, "move", broken)
    monkeypatch.setitem(WORKLOADS, "idle", lambda _bench: [Figure("idle", "x", 1, "/s")])
    results = run(["move", "idle"], bench, Console(quiet=True))
    assert results.failures == {"move": "RuntimeError: it broke"}
    assert [figure.workload for figure in results.figures] == ["idle"]


TRIED = (
    "enqueue", "enqueue-at-once", "pipeline", "enqueue-many", "move", "drain", "topics", "keys", "find",
    "memory", "crash", "storm", "scrape", "many", "history", "dump", "command-line",
)  # fmt: skip
"""The others take minutes, however small."""


@needs_redis
@pytest.mark.parametrize("name", others_later(TRIED, "move"))
def test_a_small_workload_gives_its_figures(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # So few jobs would all be done, or with the other worker, before a busy machine gets round to the kill.
    monkeypatch.setattr("benchmarks.crash._WORK_S", 0.3)
    monkeypatch.setattr("benchmarks.crash._CONCURRENCY", 5)
    monkeypatch.setattr("benchmarks.storm._DUE_FOR_S", 4.0)
    monkeypatch.setattr("benchmarks.metrics._TOPICS", 5)
    results = run([name], bench, Console(quiet=True))
    assert results.failures == {}
    reported = json.loads(json.dumps(report(results, environment(bench))))
    assert len(reported["figures"]) == len(results.figures) > 0
    assert name != "crash" or capfd.readouterr() == ("", ""), "nothing between the progress lines"


@needs_redis
@pytest.mark.parametrize("options", [[], ["--no-fail"]])
def test_the_exit_code_tells_of_a_missed_target(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = Figure("memory", "x", 500, "bytes", at_most=360)
    monkeypatch.setitem(WORKLOADS, "memory", lambda _bench: [missed])
    out = tmp_path / "figures.json"
    assert main(["memory", "--json", str(out), *options]) == (0 if options else 1)
    assert json.loads(out.read_text())["figures"][0]["met"] is False


@needs_redis
def test_the_calls_beside_enqueue_are_its_own(bench: Bench) -> None:
    """What they put in is what streamdq puts in; so both cost Redis the same."""
    with (
        bench.server() as server,
        Queue(server.url, NAMESPACE) as queue,
        closing(bare.BareSocket(server)) as connection,
    ):
        queue.enqueue(TOPIC, body(0), delay="1h")
        calls = bare.enqueue_calls(server, 6)
        bare.by_redis_py(server.client, calls[:3])
        connection.send(calls[3:])
        assert server.count(SHARD.counts, "enqueued") == 7
        found = [queue.get(TOPIC, call[-3]) for call in calls]
        assert [job.body for job in found if job] == [body(i) for i in range(6)]
        with pytest.raises(Exception, match="NOSCRIPT"):
            connection.send([("EVALSHA", "0" * 40, 0)])
