"""A real run with failures and a kill -9, dumped and analysed: every table is what plain Python makes of the history as
Redis has it, to the row.
"""

from datetime import datetime
from pathlib import Path

import pytest

from streamdq.dump import Dumper
from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.report import TABLES, load_tables, write_report
from streamdq_spark.summary import Summary
from tests.conftest import BINARIES
from tests.crash.worker_processes import WorkerProcesses
from tests.crash.workers import Options, Work
from tests.servers import Pool
from tests.spark import plain
from tests.spark.dumps import happened_in
from tests.spark.frames import assert_same
from tests.spark.plain import Happened, Table
from tests.waiting import until

JOBS = 120
OPTIONS = Options(topics=("work", "mail"), concurrency=8, ttr="10m", retry="50ms 100ms")


def put_all(processes: WorkerProcesses) -> None:
    processes.fill(JOBS, Work(ms=20), delay=0.1)
    for number in range(20):
        processes.put(f"fails-{number}", Work(fail=number % 5), topic="mail")
    processes.put("given up", Work(bury=True), topic="mail")
    processes.put("not wanted", Work(), topic="mail", delay=60)
    processes.queue.cancel("mail", "not wanted")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def log(servers: Pool, folder: Path) -> list[Happened]:
    """What happened; the dump of it is in `folder`."""
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    server = servers[BINARIES[0]]
    server.flush()
    with WorkerProcesses(server, folder) as processes:
        killed = processes.serving(processes.start(OPTIONS, worker_timeout_s=3))
        # Its handler stops the process, so it can't end before the kill. With a slot free it starts at once: what is
        # claimed ahead of a slot and lost counts as handed back.
        processes.put("holds on", Work(stop=killed.pid))
        until(lambda: killed.stopped, "the one to be killed is within a handler")
        killed.kill()
        processes.serving(processes.start(OPTIONS, worker_timeout_s=3))
        put_all(processes)
        processes.emptied()
        rows = [*happened_in(processes.queue, "work"), *happened_in(processes.queue, "mail")]
        dumper = Dumper(LocalFolder(folder / "dump"), server.url)
        with dumper.opened():
            assert dumper.dump().rows == len(rows)
    server.flush()
    return rows


@pytest.fixture(scope="module")
def summary(log: list[Happened], folder: Path) -> Summary:
    assert log
    return analyze(DuckDB(), plan(str(folder / "dump"), str(folder / "tables")))


@pytest.fixture(scope="module")
def tables(summary: Summary, folder: Path) -> dict[str, Table]:
    loaded = load_tables(LocalFolder(folder / "tables"), TABLES, summary.first_day, summary.last_day)
    return {name: [{key: _ms(value) for key, value in row.items()} for row in rows] for name, rows in loaded.items()}


def _ms(value: object) -> object:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def test_the_run_had_what_is_to_be_counted(log: list[Happened]) -> None:
    kinds = {(e.topic, e.event) for e in log}
    assert {("work", "done"), ("work", "reclaimed")} <= kinds
    assert {("mail", "retry"), ("mail", "dead"), ("mail", "cancelled")} <= kinds
    assert {e.reason for e in log} >= {"exhausted", "buried"}
    found = plain.duplicates(log)
    assert sum(row["done_again"] for row in found) == 0
    assert sum(row["jobs"] for row in found) == JOBS + 23
    assert {e.id for e in log if e.event == "done"} >= {f"work-{n}" for n in range(JOBS)}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_plain_python_makes_of_it(name: str, tables: dict[str, Table], log: list[Happened]) -> None:
    assert_same(tables.get(name, []), getattr(plain, name)(log))  # an empty table leaves no file


def test_its_report_says_how_much_was_done(summary: Summary, log: list[Happened], folder: Path) -> None:
    write_report(LocalFolder(folder / "tables"), summary, folder / "report.html")
    page = (folder / "report.html").read_text()
    done = len({e.id for e in log if e.event == "done"})
    assert f'<p class="value">{done:,}</p>' in page
    assert "This needs three complete weeks" in page
