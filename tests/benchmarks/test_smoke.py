"""The benchmarks' own judgement, and small workloads on a real server."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import bare_calls as bare
from benchmarks.__main__ import WORKLOADS, about, environment, main, report, run
from benchmarks.calls import longest_ms
from benchmarks.crash import crash
from benchmarks.enqueue import _BODIES, at_once, memory, one_by_one
from benchmarks.figures import Figure, shown, table
from benchmarks.find import find
from benchmarks.harness import NAMESPACE, SHARD, TOPIC, Bench, Order, Results, body, in_turn, new_jobs, percentile
from benchmarks.history import dump, history
from benchmarks.keys import keys
from benchmarks.many import many
from benchmarks.metrics import scrape
from benchmarks.movers import movers
from benchmarks.storm import storm
from benchmarks.timing import topics
from streamdq import Queue
from streamdq.embedded.binary import find_server
from streamdq.store.records import encode
from tests.conftest import BINARIES

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


def test_a_ratio_without_a_floor_is_missed() -> None:
    assert Figure("w", "x", 100, "/s", floor=0, ratio_at_most=1.3).met is False
    assert Figure("w", "x", 100, "/s", ratio_at_least=0.7).met is False


def test_the_longest_call_is_what_was_long_in_every_round() -> None:
    assert longest_ms([[1.0, 9.0, 2.0], [7.0, 3.0, 2.5]]) == 3.0
    assert longest_ms([[1.0, 9.0], [7.0]]) == 7.0, "other calls in another round"


def test_bounds_and_values_are_told_with_their_units() -> None:
    figure = Figure("w", "x", 1, "/s", at_least=60_000, ratio_at_least=0.7)
    assert figure.must_reach == "≥ 0.7 x floor and ≥ 60 k/s"
    assert Figure("w", "x", 1, "ms", at_most=1.5).must_reach == "≤ 1.5 ms"
    assert [shown(51_234, "/s"), shown(2.5, "/s"), shown(1.234, "ms"), shown(0, "jobs")] == [
        "51.2 k/s", "2.5 /s", "1.23 ms", "0 jobs",
    ]  # fmt: skip


def test_the_table_has_a_line_for_each_figure_and_its_verdict() -> None:
    figures = [
        Figure("move", "one", 100, "/s", 200, "bare", ratio_at_least=0.4),
        Figure("move", "two", 9, "ms", at_most=5),
    ]
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table(figures))
    lines = [line for line in capture.get().splitlines() if " one " in line or " two " in line]
    assert ["met" in lines[0], "0.50" in lines[0], "missed" in lines[1], "≤ 5 ms" in lines[1]] == [True] * 4


def test_one_missed_target_or_one_failure_fails_the_run() -> None:
    good, bad = Figure("w", "x", 1, "ms", at_most=2), Figure("w", "x", 3, "ms", at_most=2)
    assert Results([good]).passed
    assert not Results([good, bad]).passed
    assert not Results([good], {"move": "it broke"}).passed


def test_runs_take_turns_in_both_orders() -> None:
    called: list[str] = []

    def noting(name: str, value: float) -> float:
        called.append(name)
        return value

    results = in_turn(2, lambda: noting("a", 1), lambda: noting("b", 2))
    assert called == ["a", "b", "b", "a"]
    assert results == [[1, 1], [2, 2]]


def test_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert [percentile(values, percent) for percent in (50, 99, 100)] == [50, 99, 100]
    assert percentile([7], 50) == 7


def test_bodies_are_100_bytes_and_what_the_handlers_take() -> None:
    for job in new_jobs(3):
        record = encode(job, 1000)[2]
        raw = record.rsplit(b"\n", 1)[-1]
        assert len(raw) == 100
        Order.model_validate_json(raw)
    assert body(1) != body(2)


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


@pytest.mark.thorough
@needs_redis
def test_memory_grows_with_the_jobs(bench: Bench) -> None:
    *figures, compressed = memory(bench)
    assert [figure.raw["jobs"] for figure in figures] == [500] * 6
    assert all(100 < figure.value - size < 600 for figure, size in zip(figures, _BODIES, strict=True))
    values = [figure.value for figure in figures]
    assert values == sorted(values)
    assert compressed.raw["jobs"] == 500
    assert compressed.floor is not None
    assert compressed.value < compressed.floor - 80


@needs_redis
def test_a_small_workload_gives_its_figures(bench: Bench) -> None:
    results = run(["move", "command-line"], bench, Console(quiet=True))
    assert results.failures == {}
    assert [figure.workload for figure in results.figures] == [*["move"] * 3, "command-line"]
    assert all(figure.value > 0 for figure in results.figures)


@pytest.mark.thorough
@needs_redis
def test_small_workloads_give_every_figure(bench: Bench) -> None:
    results = run(["enqueue", "pipeline", "enqueue-many", "move", "drain"], bench, Console(quiet=True))
    assert results.failures == {}
    assert [figure.workload for figure in results.figures] == [
        *["enqueue"] * 4, *["pipeline"] * 3, "enqueue_many", *["move"] * 3, *["drain"] * 12,
    ]  # fmt: skip
    assert all(figure.value > 0 for figure in results.figures)
    found = environment(bench)
    told = json.loads(json.dumps(report(results, found)))
    assert {"date", "python", "redis_py", "redis", "event_loop", "cpu_count"} <= told["environment"].keys()
    assert "no figures to compare" in about(found)


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


@pytest.mark.thorough
@needs_redis
def test_a_scrape_is_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.metrics._TOPICS", 5)
    took, commands = scrape(bench)
    assert took.raw["jobs"] == 2500
    assert 5 < commands.value < 20


@pytest.mark.thorough
@needs_redis
def test_several_movers_are_measured(bench: Bench) -> None:
    figures = movers(bench)
    assert len(figures) == 8
    assert all(figure.value > 0 for figure in figures)


@pytest.mark.thorough
@needs_redis
def test_many_topics_are_measured(bench: Bench) -> None:
    figures = many(bench)
    assert len(figures) == 14
    assert all(figure.value > 0 and figure.met is not None for figure in figures)


@pytest.mark.thorough
@needs_redis
def test_lateness_among_many_topics_is_measured(bench: Bench) -> None:
    median, most = topics(bench)
    assert 0 < median.value <= most.value
    assert median.raw["jobs"] == 200


@pytest.mark.thorough
@needs_redis
def test_a_crash_is_measured_and_writes_nothing_between_the_progress_lines(
    bench: Bench, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few jobs would all be done, or with the other worker, before a busy machine gets round to the kill.
    monkeypatch.setattr("benchmarks.crash._WORK_S", 0.3)
    monkeypatch.setattr("benchmarks.crash._CONCURRENCY", 5)
    lost, _, again = crash(bench)
    assert (lost.value, again.value > 0) == (0, True), "jobs of the killed one were taken over"
    assert capfd.readouterr() == ("", "")


@pytest.mark.thorough
@needs_redis
def test_a_restart_under_many_connections_is_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.storm._DUE_FOR_S", 4.0)
    figures = storm(bench)
    restart, failover = figures[:6], figures[6:]
    assert restart[0].value >= 0
    for first, again, early, *most in (restart, failover):
        assert first.value <= again.value
        assert early.value == 0
        assert first.raw["workers"] == 10
        assert all(figure.value > 0 for figure in most)


@pytest.mark.thorough
@needs_redis
def test_history_and_its_dump_are_measured(bench: Bench) -> None:
    (cost,) = history(bench)
    assert cost.value > 0 < cost.raw["jobs"]
    (rate,) = dump(bench)
    assert rate.value > 0
    assert rate.raw["rows"] == 1000


@pytest.mark.thorough
@needs_redis
def test_limits_of_keys_are_measured(bench: Bench) -> None:
    median, most, *drains = keys(bench)
    assert 0 <= median.value <= most.value
    assert median.raw["jobs"] == 1000
    assert len(drains) == 3
    assert all(figure.value > 0 for figure in drains)


@needs_redis
def test_searches_are_measured_beside_a_worker(bench: Bench) -> None:
    *searches, p50, p99, longest = find(bench)
    assert len(searches) == 7
    assert all(search.value > 0 for search in searches)
    assert searches[0].raw["jobs"] == 1000
    late = [p50, p99]
    assert all(figure.floor is not None for figure in late)
    assert longest.unit == "ms"


@needs_redis
def test_the_calls_beside_enqueue_are_its_own(bench: Bench) -> None:
    """What they put in is what streamdq puts in; so both cost Redis the same."""
    with (
        bench.server() as server,
        Queue(server.url, NAMESPACE) as queue,
        closing(bare.BareSocket(server)) as connection,
    ):
        queue.enqueue(TOPIC, body(0), delay="1h")
        calls = bare.enqueue_calls(6)
        bare.by_redis_py(server.client, calls[:3])
        connection.evalsha(calls[3:])
        assert server.count(SHARD.counts, "enqueued") == 7
        found = [queue.get(TOPIC, call[-3]) for call in calls]
        assert [job.body for job in found if job] == [body(i) for i in range(6)]
        with pytest.raises(Exception, match="NOSCRIPT"):
            connection.evalsha([("0" * 40, 0)])


@needs_redis
def test_enqueue_is_measured_beside_the_same_calls(bench: Bench) -> None:
    figures = [*one_by_one(bench), *at_once(bench)]
    assert len({(figure.what, figure.floor_is) for figure in figures}) == 6
    assert all(figure.value > 0 and figure.floor for figure in figures)
