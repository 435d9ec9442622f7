"""A real run, with failures and a kill -9: what Spark finds in its history is what plain Python finds, to the row."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import BINARIES
from tests.crash.crew import Crew
from tests.crash.workers import Options, Work
from tests.servers import Pool, until
from tests.spark import plain
from tests.spark.frames import assert_same, collected, frame
from tests.spark.plain import Happened
from tests.spark.test_questions import ANSWERS, Answer, ByHand

JOBS = 120
OPTIONS = Options(topics=("work", "mail"), concurrency=8, ttr="1s", retry="50ms 100ms")


def put_all(crew: Crew) -> None:
    crew.fill(JOBS, Work(ms=20), delay=0.1)
    for number in range(20):
        crew.put(f"fails-{number}", Work(fail=number % 5), topic="mail")
    crew.put("given up", Work(bury=True), topic="mail")
    crew.put("not wanted", Work(), topic="mail", delay=60)
    crew.queue.cancel("mail", "not wanted")
    crew.put("holds on", Work(ms=700))


def history_of(crew: Crew, topic: str) -> Iterator[Happened]:
    after: dict[int, str] = {}
    while (page := crew.queue.history(topic, after)).rows:
        after = page.after
        for row in page.rows:
            yield Happened(
                row.topic, row.shard, row.entry, row.event.value, row.id, row.group or None, row.attempt, row.step,
                row.consumer or None, row.created_ms, row.due_ms, row.moved_ms, row.started_ms, row.finished_ms,
                row.error or None, row.reason or None, row.body_bytes,
            )  # fmt: skip


@pytest.fixture(scope="module")
def log(servers: Pool, tmp_path_factory: pytest.TempPathFactory) -> list[Happened]:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    server = servers[BINARIES[0]]
    server.flush()
    with Crew(server, tmp_path_factory.mktemp("crew")) as crew:
        killed, other = crew.start(OPTIONS), crew.start(OPTIONS)
        crew.serving(killed)
        crew.serving(other)
        put_all(crew)
        until(lambda: crew.journal.running(killed.pid), "the one to be killed has work")
        killed.kill()
        crew.emptied()
        rows = [*history_of(crew, "work"), *history_of(crew, "mail")]
    server.flush()
    return rows


@pytest.fixture(scope="module")
def events(spark: SparkSession, log: list[Happened]) -> DataFrame:
    return frame(spark, log).cache()


def test_the_run_had_what_is_to_be_counted(log: list[Happened]) -> None:
    kinds = {(e.topic, e.event) for e in log}
    assert {
        ("work", "done"),
        ("work", "reclaimed"),
        ("mail", "retry"),
        ("mail", "dead"),
        ("mail", "cancelled"),
    } <= kinds
    assert {e.reason for e in log} >= {"exhausted", "buried"}
    found = plain.duplicates(log)
    assert sum(row["done_again"] for row in found) == 0
    assert sum(row["jobs"] for row in found) == JOBS + 23
    assert {e.id for e in log if e.event == "done"} >= {f"work-{n}" for n in range(JOBS)}


@pytest.mark.parametrize(("answer", "by_hand"), ANSWERS, ids=lambda f: f.__name__)
def test_spark_finds_what_plain_python_finds(
    answer: Answer, by_hand: ByHand, events: DataFrame, log: list[Happened]
) -> None:
    assert_same(collected(answer(events)), by_hand(log))
