"""Through Spark Connect, by a client that has no Java: the server is that of the installed PySpark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.questions import QUESTIONS
from tests.children import child
from tests.servers import Server
from tests.spark.cluster import connect_server
from tests.spark.frames import assert_same, rows_of, written
from tests.spark.lived import ORDERS, live
from tests.spark.shared import GIVEN_UP_S
from tests.waiting import until

pytestmark = [pytest.mark.usefixtures("class_archive"), pytest.mark.thorough]
READ = """
import sys
from pyspark.sql import functions as F
from streamdq_spark.session import session
from streamdq_spark.source import register
with session(sys.argv[1]) as spark:
    register(spark)
    rows = spark.read.format("streamdq").option("url", sys.argv[2]).option("rows_per_partition", 10).load()
    print(type(spark).__module__, rows.where(F.col("event") == "cancelled").count())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as started:
        yield started.url


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived") / "dump"
    live(folder)
    return folder


def environment(cwd: Path) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "SPARK_HOME"}}
    return found | {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": str(cwd)}


def streamdq(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command on a machine without Java."""
    return python("-m", "streamdq", *arguments, cwd=cwd)


def python(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment(cwd), cwd=cwd, capture_output=True, text=True, timeout=GIVEN_UP_S)


PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_tables_are_those_of_duckdb(server: str, dump: Path, tmp_path: Path, part: int) -> None:
    out = tmp_path / "out"
    wanted = list(QUESTIONS)[part::PARTS]
    job: list[str | Path] = ["analyze", dump, "--output", out, "--json", "--master", server]
    job += [word for name in wanted for word in ("--only", name)]
    if part == 0:
        job += ["--compare", *(f"{day}..{day}" for day in ("2026-01-05", "2026-01-06"))]
        wanted.append("compared")
    done = streamdq(*job, "--report", tmp_path / "report.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(json.loads(done.stdout)["tables"]) == wanted
    compare = ("2026-01-05..2026-01-05", "2026-01-06..2026-01-06")
    here = plan(str(dump), str(tmp_path / "here"), compare=compare if part == 0 else None)
    analyze(DuckDB(), here, questions=wanted)
    for name in wanted:
        assert_same(rows_of(written(out / name)), rows_of(written(tmp_path / "here" / name)))
    assert ("<h3>Which retries help?</h3>" in (tmp_path / "report.html").read_text()) == ("retries" in wanted)


def test_sql_and_what_if_ask_it_too(server: str, dump: Path, tmp_path: Path) -> None:
    query = "select topic, count(distinct id) as jobs from events group by topic order by topic"
    done = streamdq("sql", dump, query, "--engine", "spark", "--master", server, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["topic"] for row in json.loads(done.stdout)] == ["order.close", "refund.check"]
    done = streamdq("what-if", dump, "--retry", "15s", "--topic", ORDERS, "--master", server, "--json", cwd=tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout)["pools"]


def test_its_workers_read_redis(server: str, newest: Server, tmp_path: Path) -> None:
    with Queue(newest.url) as queue:
        for n in range(40):
            queue.enqueue("t", n, id=str(n), delay="1h")
            queue.cancel("t", str(n))
    (tmp_path / "read.py").write_text(READ)
    done = python("read.py", server, newest.url, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["pyspark.sql.connect.session", "40"]


def test_a_server_that_ends_during_an_analysis_is_reported(dump: Path, tmp_path: Path) -> None:
    """Within minutes: to keep asking for what it kept would take half an hour."""
    with connect_server(tmp_path) as server:
        command = [sys.executable, "-m", "streamdq", "analyze", str(dump), "--output", "out", "--master", server.url]
        with child(command, env=environment(tmp_path), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as analysis:
            until(lambda: "Removed TaskSet" in server.log.read_text(), "the analysis to begin")
            os.killpg(server.group, signal.SIGKILL)
            _, said = analysis.communicate(timeout=GIVEN_UP_S)
    assert analysis.returncode == 1
    assert re.fullmatch(r"streamdq: .*: the Spark Connect server has ended, or can't be reached any more: .*\n", said)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--master", "sc://127.0.0.1:1"), "no Spark Connect server answers at sc://127.0.0.1:1 ("),
        (("--master", "{server}", "--memory", "1g"), "--memory 1g: give it to the server, which runs already"),
    ],
)
def test_what_can_t_be_is_reported_in_a_line(
    server: str, dump: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    given = [argument.format(server=server) for argument in arguments]
    done = streamdq("analyze", dump, "--output", tmp_path / "out", *given, cwd=tmp_path)
    assert done.returncode in {1, 2}
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_without_the_client_s_packages_it_says_which_extra_has_them(server: str, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "streamdq_without_grpc.py").write_text(
        "import sys\nsys.modules['grpc'] = None\nfrom streamdq.cli.app import run\nsys.exit(run(sys.argv[1:]))\n"
    )
    job: list[str | Path] = ["analyze", dump, "--output", tmp_path / "out", "--master", server]
    done = python("streamdq_without_grpc.py", *job, cwd=tmp_path)
    assert done.returncode in {1, 2}
    assert "streamdq[connect]" in done.stderr
    assert done.stderr.count("\n") == 1
