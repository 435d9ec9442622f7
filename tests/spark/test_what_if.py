"""`streamdq what-if`: what it predicts for other settings is what really happens with them, by workers and jobs that
are followed millisecond by millisecond (`shop_floor`).
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamdq.errors import InvalidInput
from streamdq_spark.commands.what_if import _notes, _verdict
from streamdq_spark.events import EVENTS
from streamdq_spark.questions.pools import pool_numbers
from streamdq_spark.whatif import Answer, Change, QueueAnswer, what_if
from streamdq_spark.whatif.answer import Figures, PoolAnswer, range_of_p99
from tests.spark import plain
from tests.spark.conftest import Command
from tests.spark.dumps import as_row, write_dump
from tests.spark.frames import frame
from tests.spark.logs import MONDAY, done, random_log
from tests.spark.plain import Happened
from tests.spark.shop_floor import Floor, Task, happened, tasks

JOBS = tasks(1, 3000, over_ms=45_000)
HANGING = [Task("t", f"j{n}", MONDAY + 100 * n, [20 + n % 100] * 9, 0) for n in range(1000)]
ONE = frozenset(["mails"])
RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="module")
def log() -> list[Happened]:
    return happened(JOBS, Floor())


def asked(spark: SparkSession, log: list[Happened], change: Change, *, had: int | None = None, seed: int = 1) -> Answer:
    return what_if(spark, frame(spark, log), change, had_concurrency=had, seed=seed)


def of(answer: Answer, topic: str) -> QueueAnswer:
    (found,) = (queue for queue in answer.queues if queue.topic == topic)
    return found


def seen_in(log: list[Happened], topic: str) -> tuple[int, int, int, float | None, float | None]:
    here = [e for e in log if e.topic == topic and e.event in plain.ENDED]
    late = [e.started - e.due for e in here if e.started is not None and e.due is not None]
    done, dead = (sum(e.event == event for e in here) for event in ("done", "dead"))
    return len(here), done, dead, plain.quantile(late, 0.5), plain.quantile(late, 0.99)


def figures(own: Figures) -> tuple[int, int, int, float | None, float | None]:
    return own.attempts, own.done, own.dead, own.p50_ms, own.p99_ms


def assert_close(own: Figures, wanted: tuple[int, int, int, float | None, float | None]) -> None:
    for reported, came, share in ((own.p50_ms, wanted[3], 0.05), (own.p99_ms, wanted[4], 0.15)):
        assert reported is not None
        assert came is not None
        assert abs(reported - came) <= 1 + share * came


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "floor"),
    [
        (Change(retry_ms=(), workers=3), Floor(retry=(), workers=3)),
        (Change(workers=4), Floor(workers=4)),
        (Change(workers=1, concurrency=9), Floor(workers=1, each=9)),
        (Change(concurrency=5), Floor(each=5)),
        (Change(retry_ms=(100,)), Floor(retry=(100,))),
        (Change(rate=1000 / 25, topics=ONE, workers=3), Floor(apart=25, only="mails", workers=3)),
    ],
    ids=str,
)
def test_what_it_predicts_is_what_happens(
    spark: SparkSession, log: list[Happened], change: Change, floor: Floor
) -> None:
    answer = asked(spark, log, change)
    truth = happened(JOBS, floor)
    assert answer.good
    for topic in ("orders", "mails"):
        queue = of(answer, topic)
        assert figures(queue.seen) == pytest.approx(seen_in(log, topic))
        assert_close(queue.replayed, seen_in(log, topic))
        assert_close(queue.changed, seen_in(truth, topic))
        # Jobs that are due after the history's end are not followed.
        attempts, done, dead, *_ = seen_in(truth, topic)
        assert queue.changed.attempts + queue.changed.open >= attempts >= queue.changed.attempts
        if not queue.changed.open:
            assert figures(queue.changed)[:3] == (attempts, done, dead)
        assert queue.drawn == 0
    changed = sum(queue.changed.busy_ms for queue in answer.queues)
    wanted = sum(e.finished - (e.started or 0) for e in truth)
    assert changed == wanted or any(queue.changed.open for queue in answer.queues)


@pytest.mark.thorough
@pytest.mark.parametrize("change", [Change(concurrency=5), Change(retry_ms=(100,))], ids=str)
def test_ends_that_are_recorded_late_keep_no_place(spark: SparkSession, change: Change) -> None:
    """By the history more attempts run at once than there are places, so their number has to be given."""
    log = happened(JOBS, Floor(report=20))
    answer = asked(spark, log, change, had=3)
    (pool,) = answer.pools
    assert answer.good
    assert max(row["most_at_once"] for row in plain.workers(log)) > 3
    assert pool.turn_ms < 0
    retry = Floor().retry if change.retry_ms is None else change.retry_ms
    truth = happened(JOBS, Floor(2, change.concurrency or 3, retry, report=20))
    for queue in answer.queues:
        assert_close(queue.changed, seen_in(truth, queue.topic))


@pytest.mark.thorough
def test_steps_that_nobody_saw_are_drawn_by_the_chance_of_the_last_one(spark: SparkSession) -> None:
    """Two in five attempts fail, whatever their number; so with two steps more, about .16 as many are given up."""
    jobs = tasks(5, 3000, over_ms=300_000, fails=0.4)
    log = happened(jobs, Floor(workers=9, retry=(50, 50)))
    longer = Change(retry_ms=(50, 50, 70, 90))
    first, again, other = (asked(spark, log, longer, seed=seed) for seed in (1, 1, 2))
    truth = happened(jobs, Floor(workers=9, retry=(50, 50, 70, 90)))
    assert first == again != other
    for answer in (first, other):
        queues = list(answer.queues)
        drawn, dead = sum(queue.drawn for queue in queues), sum(queue.changed.dead for queue in queues)
        buried = sum(e.reason == "buried" for e in log)
        exhausted = sum(e.reason == "exhausted" for e in log)
        assert exhausted < drawn < 2 * exhausted
        assert 0.08 < (dead - buried) / exhausted < 0.26
        really = sum(e.event == "dead" for e in truth)
        assert dead == pytest.approx(really, rel=0.25)


@pytest.mark.thorough
def test_a_shorter_ttr_cuts_attempts_off_and_a_longer_one_cant_know(spark: SparkSession) -> None:
    log = happened(HANGING, Floor(workers=4, ttr=90, retry=(30,)))
    cut = sum(e.error == "TimeoutError" for e in log)
    assert cut == 2 * sum(e.event == "dead" for e in log) == 2 * 380
    shorter = of(asked(spark, log, Change(ttr_ms=60, retry_ms=())), "t")
    assert (shorter.changed.dead, shorter.changed.done, shorter.unknown) == (650, 350, 0)
    assert shorter.changed.busy_ms == sum(min(task.runs[0], 54) for task in HANGING)
    never_cut = of(asked(spark, happened(HANGING, Floor(workers=4)), Change(ttr_ms=60, retry_ms=())), "t")
    assert (never_cut.changed.dead, never_cut.unknown) == (650, 0)
    same = of(asked(spark, log, Change(ttr_ms=90)), "t")
    assert (same.unknown, same.drawn, same.changed) == (0, 0, same.replayed)
    longer = of(asked(spark, log, Change(ttr_ms=100)), "t")
    assert (longer.unknown, longer.changed.dead) == (cut, 380)
    assert longer.changed.busy_ms == longer.seen.busy_ms + 9 * cut


def recorded(spark: SparkSession, name: str) -> DataFrame:
    """Recorded by `python -m benchmarks.what_if --record`: two workers on a real Redis, bursts, failures, TTRs of 2 s
    that pass, and topics that share slots. In `long` and `full` handlers ran until their TTR had passed; in `hung` they
    were cancelled before that.
    """
    return spark.createDataFrame(pq.read_table(RECORDED / f"{name}.parquet", columns=EVENTS.names), EVENTS)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["long", "full", "short", "hung"])
def test_a_replay_of_what_real_workers_did_is_close_to_it(spark: SparkSession, name: str) -> None:
    (pool,) = what_if(spark, recorded(spark, name), Change(workers=2)).pools
    judged = [queue for queue in pool.queues if queue.judged]
    assert len(judged) >= 2
    assert pool.workers == 2
    for queue in judged:
        assert max(queue.seen.p99_ms or 0, queue.seen.p50_ms or 0) > 20
        assert queue.good, (queue.topic, queue.errors)
        same = queue.seen.attempts, queue.seen.done, queue.seen.dead
        assert (queue.replayed.attempts, queue.replayed.done, queue.replayed.dead) == same


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "topic", "cut"), [("hung", "calls", 40), ("full", "mails", 9)])
def test_what_real_workers_cut_off_is_known_with_their_own_ttr(
    spark: SparkSession, name: str, topic: str, cut: int
) -> None:
    events = recorded(spark, name)
    same, longer = (of(what_if(spark, events, Change(ttr_ms=ttr)), topic) for ttr in (2000, 2500))
    assert (same.unknown, longer.unknown) == (0, cut)
    assert (same.changed.done, same.changed.dead) == (same.seen.done, same.seen.dead)
    assert same.changed.busy_ms == pytest.approx(cut * 1800 + same.seen.busy_ms - ran_when_cut(events, topic))


def ran_when_cut(events: DataFrame, topic: str) -> float:
    rows = events.where(f"topic = '{topic}' and error = 'TimeoutError'").select("started", "finished").collect()
    return sum((row["finished"] - row["started"]).total_seconds() * 1000 for row in rows)


def test_a_p99_of_few_attempts_may_be_off_by_chance() -> None:
    def answer(p99_ms: float) -> QueueAnswer:
        seen = Figures(300, 300, 0, 0, 0, 0, 5, 100, 1000)
        return QueueAnswer("t", "g", seen, replace(seen, p99_ms=p99_ms), seen, 0, 0, 1.0, 60, 180)

    for p99 in (90, 100, 110):
        assert (answer(p99).good, answer(p99).p99_by_chance) == (True, False)
    for p99 in (60, 80, 120, 180):
        assert (answer(p99).good, answer(p99).p99_by_chance) == (True, True)
    for p99 in (50, 190):
        assert (answer(p99).good, answer(p99).p99_by_chance) == (False, False)
    far = replace(answer(120), replayed=replace(answer(120).replayed, p50_ms=9))
    assert not far.good
    reported = [_verdict(Answer([PoolAnswer([queue], 1, 1, 0, 0, 1, 1, 0)])).plain for queue in (answer(180), far)]
    assert reported[0].endswith(
        "the p99 by 79.0% (that of t by no more than chance, with so few attempts): good enough (5 %, 15 %)"
    )
    assert "most in t: DON'T TRUST IT" in reported[1]


@pytest.mark.thorough
@pytest.mark.parametrize("count", [364, 1000, 5000])
def test_the_range_of_a_p99_has_the_true_one_in_19_of_20_cases(count: int) -> None:
    chance = np.random.default_rng(1)
    ranges = [range_of_p99(chance.exponential(1, count)) for _ in range(2000)]
    true = math.log(100)
    within = sum(found["p99_low_ms"] <= true <= found["p99_high_ms"] for found in ranges)
    assert 0.93 < within / 2000 < 0.97


@pytest.mark.thorough
def test_a_replay_that_is_off_says_so(spark: SparkSession, log: list[Happened]) -> None:
    """With more handlers than there were, jobs would not have waited for one; so what it says of other changes is worth
    nothing.
    """
    for too_many in (6, 9, 20, 100):
        assert not asked(spark, log, Change(retry_ms=(100,)), had=too_many).good, too_many
    assert asked(spark, log, Change(retry_ms=(100,)), had=3).good


@pytest.mark.thorough
def test_too_few_attempts_are_not_judged(spark: SparkSession) -> None:
    answer = asked(spark, [done("t", MONDAY + n, id=str(n)) for n in range(99)], Change(workers=1))
    (queue,) = answer.queues
    assert not queue.judged
    assert answer.good


@pytest.mark.thorough
def test_a_concurrency_that_nothing_shows_is_asked_for(spark: SparkSession) -> None:
    log = [done("t", MONDAY + 1000 * n, id=str(n)) for n in range(100)]
    with pytest.raises(InvalidInput, match="the workers of t were never certainly full"):
        asked(spark, log, Change(workers=3))
    assert asked(spark, log, Change(workers=3), had=2).good
    assert asked(spark, log, Change(ttr_ms=1000)).good


@pytest.mark.thorough
@pytest.mark.parametrize("busy", [0.6, 0.75, 0.9])
def test_concurrency_halved_and_doubled_is_what_happens(spark: SparkSession, busy: float) -> None:
    """So busy are the fewer of the workers' slots, of which the history does not say how many there were."""
    jobs = tasks(7, 3000, over_ms=round(3000 * 60 / 8 / busy), bursts=8)
    logs = {each: happened(jobs, Floor(each=each)) for each in (4, 8)}
    for had, other in ((4, 8), (8, 4)):
        answer = asked(spark, logs[had], Change(concurrency=other), had=had)
        for queue in answer.queues:
            _, _, _, p50, p99 = seen_in(logs[other], queue.topic)
            assert queue.changed.p50_ms == pytest.approx(p50, rel=0.15, abs=2)
            assert queue.changed.p99_ms == pytest.approx(p99, rel=0.25, abs=2)


def test_near_full_workers_a_range_is_given() -> None:
    seen = Figures(300, 300, 0, 0, 0, 0, 5, 100, 1000)
    queue = QueueAnswer("t", "g", seen, seen, seen, 0, 0, 1.0, 60, 180, 90, 150)
    steady = replace(queue, changed_high_ms=100)
    assert (queue.is_near_full, steady.is_near_full) == (True, False)
    notes = [list(_notes(Answer([PoolAnswer([own], 1, 1, 0, 0, 1, 1, 0)]))) for own in (queue, steady)]
    assert [[note.plain for note in own] for own in notes] == [
        ["t: a p99 of 90ms to 150ms, as handlers may run 5 % shorter or longer"], []
    ]  # fmt: skip


def until_done(log: list[Happened]) -> list[Happened]:
    """Without what this log has after a job was done or expired, which never happens."""
    kept = []
    for rows in plain.by(log, lambda e: (plain.life(e), e.group)).values():
        rows.sort(key=plain.order)
        ends = next((n for n, e in enumerate(rows) if e.event in ("done", "expired")), len(rows))
        kept += rows[: ends + 1]
    return kept


@pytest.mark.thorough
def test_all_kinds_of_rows_are_replayed(spark: SparkSession) -> None:
    """Hand-backs, take-overs, snoozes, cancels, expiries, kicks, unknown times."""
    log = until_done(random_log(seed=3, jobs=600))
    at = max(e.finished for e in log)
    life = [
        done("kicked", at - 5000, id="k", event="dead", error="E", reason="exhausted"),
        done("kicked", at - 3000, id="k", event="kicked", started=None, consumer=None, due=at - 3000),
        done("kicked", at - 2000, id="k", due=at - 3000, attempt=2),
    ]
    log += [e._replace(created=at - 9000, moved=e.due) for e in life]
    answer = asked(spark, log, Change(workers=50, concurrency=50), had=9)
    for queue in answer.queues:
        here = [e for e in log if (e.topic, e.group) == (queue.topic, queue.group)]
        for own in (queue.seen, queue.replayed, queue.changed):
            for name, events in (("attempts", plain.ENDED), ("done", {"done"}), ("dead", {"dead"}),
                                 ("expired", {"expired"}), ("cancelled", {"cancelled"})):  # fmt: skip
                assert getattr(own, name) == sum(e.event in events for e in here)
        assert queue.errors[0] <= 0.05
    kicked = of(answer, "kicked")
    assert (kicked.replayed.dead, kicked.replayed.done, kicked.replayed.attempts) == (1, 1, 2)
    assert kicked.replayed.p99_ms == kicked.seen.p99_ms
    cured = of(asked(spark, log, Change(retry_ms=(1, 1, 1), topics=frozenset(["kicked"]))), "kicked")
    assert cured.seen.dead == 1
    assert cured.drawn > 0  # it was not dead when it was kicked, so that did nothing


def test_queues_that_share_a_worker_are_one_pool() -> None:
    worked = [("a", "g", "w1"), ("b", "g", "w1"), ("c", "g", "w2"), ("d", None, "w3"), ("b", "g", "w4"),
              ("e", "g", "w4"), ("f", "g", "w5"), ("c", "g", "w5")]  # fmt: skip
    numbers = pool_numbers(worked)
    together = [{topic for (topic, _), own in numbers.items() if own == pool} for pool in set(numbers.values())]
    assert sorted(map(sorted, together)) == [["a", "b", "e"], ["c", "f"], ["d"]]
    assert pool_numbers(reversed(worked)) == numbers


def test_pools_are_numbered_by_names_and_not_by_how_python_writes_them() -> None:
    assert pool_numbers([("it's", "g", "w1"), ("is", None, "w2"), ("is", "g", "w3")]) == {
        ("is", None): 0, ("is", "g"): 1, ("it's", "g"): 2,
    }  # fmt: skip


# -- the command


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory, log: list[Happened]) -> Path:
    folder = tmp_path_factory.mktemp("what-if") / "dump"
    write_dump(folder, map(as_row, log))
    return folder


@pytest.mark.thorough
def test_the_command_shows_all_three(command: Command, dump: Path, log: list[Happened]) -> None:
    code, said, _ = command("what-if", dump, "--workers", "4", "--retry", "100ms", "--topic", "mails")
    assert code == 0
    assert [said.count(word) for word in ("seen ", "replayed ", "what if ")] == [2, 2, 2]
    assert "at most 2 workers × 3 at once → 4 workers × 3" in said
    assert "good enough (5 %, 15 %)" in said
    code, said, _ = command("what-if", dump, "--workers", "4", "--json")
    reported = json.loads(said)
    assert (code, reported["good"]) == (0, True)
    (pool,) = reported["pools"]
    for queue in pool["queues"]:
        assert list(queue["seen"].values())[:3] == list(seen_in(log, queue["topic"])[:3])
        assert queue["changed"]["p99_ms"] < queue["replayed"]["p99_ms"]


@pytest.mark.thorough
def test_the_command_warns_of_a_bad_replay(command: Command, dump: Path) -> None:
    code, said, _ = command("what-if", dump, "--workers", "4", "--concurrency-was", "9")
    assert code == 1
    assert "DON'T TRUST IT" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to change"),
        (["--topic", "mails"], "nothing to change"),
        (["--retry", "soon"], "can't read 'soon'"),
        (["--ttr", "0"], "at least 1 ms"),
        (["--workers", "0"], "--workers"),
        (["--rate", "-1"], "--rate"),
        (["--rate", "nan"], "--rate"),
        (["--rate", "1e-9"], "rate: 1e-09 is not a number of jobs per second"),
        (["--workers", "1", "--from", "2030-01-01"], "no events on the requested days"),
        (["--workers", "1", "--topic", "mial"], "no topic 'mial' in these days; there are mails, orders"),
    ],
)
def test_bad_input_is_reported_in_one_line(command: Command, dump: Path, words: list[str], message: str) -> None:
    code, out, err = command("what-if", dump, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
