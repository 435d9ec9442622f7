"""Whatever Spark fails for, the command says in a line what happened and what to do, and nothing of Java's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from streamdq.store.history.rows import Event
from streamdq_spark.errors import SparkFailed, SparkGone
from streamdq_spark.failures import meaning, spark_errors
from streamdq_spark.session import ANALYSIS, FEW_EVENTS, INTERPRETED, MANY_EVENTS, settings_for
from tests.spark.dumps import START, event, write_dump
from tests.spark.shared import GIVEN_UP_S

TRACE = """An error occurred while calling o63.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times.
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2785)
Caused by: {cause}
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:774)
\t... 12 more
"""


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "ran out of memory: give it more (--memory 4g)"),
        ("java.io.IOException: No space left on device", "the disk is full: free space"),
        ("java.io.FileNotFoundException: /x (Permission denied)", "may not read or write there: check the folder"),
        ("java.io.IOException: Mkdirs failed to create file:/proc/x", "may not read or write there"),
        ("java.net.UnknownHostException: bucket.example", "can't reach what it needs"),
        ("org.apache.spark.SparkException: All masters are unresponsive! Giving up.", "check --master"),
        ("java.lang.IllegalStateException: org.example.Odd: no more of it SQLSTATE: XX000", "no more of it"),
    ],
)
def test_a_trace_is_reported_in_words(cause: str, message: str) -> None:
    said = meaning(TRACE.format(cause=cause))
    assert message in said
    assert not re.search(r"\n|\tat |Exception|java\.|org\.", said)


def test_without_a_cause_it_is_the_first_message() -> None:
    assert (
        meaning("An error occurred while calling o1.count.\n: a.b.SomeException: it is so\n\tat a.b.C(D:1)")
        == "it is so"
    )
    assert meaning("") == ""


def test_an_error_that_can_t_be_asked_any_more_is_reported_too() -> None:
    """Py4J's errors ask the Java process for their trace when they are printed."""

    class Cut(ConnectionError):
        def __str__(self) -> str:
            raise Py4JNetworkError("Error while sending or receiving")

    with pytest.raises(SparkFailed, match=r"^retries: Spark's Java process has ended"), spark_errors("retries"):
        raise Cut


@pytest.mark.parametrize(
    "said",
    [
        "Job 3 cancelled because SparkContext was shut down",
        "Cannot call methods on a stopped SparkContext.",
        "[RETRIES_EXCEEDED] The maximum number of retries has been exceeded.",
        (
            'Cannot invoke "org.apache.spark.scheduler.DAGScheduler.cleanup(long)" because the return value of '
            '"org.apache.spark.SparkContext.dagScheduler()" is null'
        ),
        (
            'Cannot invoke "org.apache.spark.SparkEnv.blockManager()" because the return value of '
            '"org.apache.spark.SparkEnv$.MODULE$.get()" is null'
        ),
    ],
)
def test_a_session_that_is_being_stopped_is_gone(said: str) -> None:
    """Whatever Java calls it that has no parts left: what it was stopped for is in its log."""
    with pytest.raises(SparkGone, match=r"^retries: "), spark_errors("retries"):
        raise PySparkException(f"An error occurred while calling o1.count.\n: java.lang.X: {said}\n\tat a.B(C:1)")


GRPC = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.{status}
\tdetails = "{details}"
\tdebug_error_string = "UNKNOWN:Error received from peer ipv4:127.0.0.1:15002"
>"""


@pytest.mark.parametrize(
    ("status", "details", "message"),
    [
        ("INTERNAL", "no more of it", "no more of it"),
        ("INTERNAL", "java.lang.VirtualMachineError: Out of space in CodeCache for adapters", "start it with -XX:Res"),
        ("UNAVAILABLE", "Socket closed", "Spark's Java process has ended"),
    ],
)
def test_what_a_server_says_is_reported(status: str, details: str, message: str) -> None:
    with pytest.raises(SparkFailed, match=f"^hosts: .*{message}") as caught, spark_errors("hosts"):
        raise PySparkException(GRPC.format(status=status, details=details))
    assert "RPC" not in str(caught.value)
    assert isinstance(caught.value, SparkGone) == (status == "UNAVAILABLE")


def test_a_plan_that_is_nested_too_deeply_for_a_client_is_reported() -> None:
    message = r"^compared: its plan is nested too deeply to be sent to a Spark Connect server"
    with pytest.raises(SparkFailed, match=message), spark_errors("compared"):
        raise RuntimeError("Error parsing message: Exceeded upb_DecodeOptions_MaxDepth")


def test_all_analyses_have_the_same_settings_but_for_partitions_and_compilers() -> None:
    few, some, many = (settings_for(events) for events in (FEW_EVENTS - 1, MANY_EVENTS - 1, 50 * MANY_EVENTS))
    assert few.items() >= (ANALYSIS | INTERPRETED).items()
    partitions = ("spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum")
    compilers = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")
    assert many.items() >= (ANALYSIS | dict.fromkeys(partitions, "200")).items()
    assert some.keys() == many.keys() == ANALYSIS.keys() | {*partitions, *compilers}
    assert {key for key in many if some[key] != many[key]} == {*partitions, *compilers}


@pytest.mark.parametrize("events", [28_000, FEW_EVENTS, 1_000_000, 30_000_000])
def test_a_cluster_keeps_what_it_says_of_java(events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`extraJavaOptions` is the cluster's and the user's own, and Java refuses two collectors."""
    elsewhere = [settings_for(events, "spark://master:7077")]
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    elsewhere.append(settings_for(events))
    for settings in elsewhere:
        assert not [key for key in settings if key.endswith(".extraJavaOptions")]
        assert not [value for value in settings.values() if "GC" in value]
        partitions = int(settings["spark.sql.shuffle.partitions"])
        assert partitions >= 4
        assert events / partitions <= 250_000


PROGRAM = """
import sys
import psutil
from pyspark.sql import functions as F
from streamdq.cli import app
from streamdq_spark.engines.spark import SparkAnswers
from streamdq_spark.failures import spark_errors

def killed(spark):
    (java,) = psutil.Process().children()
    java.kill()
    java.wait()
    spark.range(1).collect()

def too_large(spark):
    halves = [F.expr(f"repeat('{n}', 500000000)") for n in "ab"]
    spark.range(1).select(F.length(F.concat(*halves, F.col("id").cast("string")))).collect()

WRONG, rows = {"errors": killed, "hosts": too_large}, SparkAnswers.rows

def wrongly(self, name):
    with spark_errors(name):
        WRONG.get(name, lambda spark: None)(self._spark)
    return rows(self, name)

SparkAnswers.rows = wrongly
sys.exit(app.run(sys.argv[1:]))
"""


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in which one table kills Spark, and one wants too much of it."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "analyze",
        str(folder / "dump"),
        "--output",
        str(folder / "out"),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, timeout=GIVEN_UP_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [event(n, START + timedelta(hours=n + 1), event=Event.CANCELLED.value, started=None) for n in range(3)]
    write_dump(tmp_path / "dump", rows, hours_each=24)
    return tmp_path


@pytest.mark.thorough
@pytest.mark.usefixtures("class_archive")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "spark", "--only", "errors"), "errors: Spark's Java process has ended."),
        (("--engine", "spark", "--only", "hosts", "--memory", "512m"), "hosts: Spark ran out of memory: give it more"),
        (("--master", "nonsense"), "Spark did not start: no Spark answers at that master"),
    ],
)
def test_a_failure_is_one_line_and_its_log_is_kept(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = analyze(folder, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert message in done.stderr
    assert not re.search(r"\tat |Traceback|Exception|java\.|org\.apache|py4j", done.stderr)
    (log,) = folder.glob("streamdq-spark-*.log")
    assert str(log) in done.stderr


@pytest.mark.thorough
@pytest.mark.usefixtures("class_archive")
def test_a_success_says_nothing_on_stderr_and_leaves_no_log(folder: Path) -> None:
    """Though most questions find nothing in cancels."""
    done = analyze(
        folder,
        "--engine",
        "spark",
        "--only",
        "retries",
        "--only",
        "throughput",
        "--report",
        str(folder / "report.html"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"retries\s+0", done.stdout)
    assert not list(folder.glob("streamdq-spark-*.log"))


@pytest.mark.thorough
@pytest.mark.usefixtures("class_archive")
def test_what_spark_logs_is_shown_if_asked_for(folder: Path) -> None:
    done = analyze(folder, "--master", "nonsense", "--verbose")
    assert done.returncode == 1
    assert "\tat " in done.stderr
    assert not list(folder.glob("streamdq-spark-*.log"))
