"""Starts Spark quietly, or reaches one that runs, by what PySpark offers in public alone."""

from __future__ import annotations

import atexit
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pyspark.sql import SparkSession

from streamdq.errors import InvalidInput

from . import remote
from .errors import AnalysisError, SparkFailed, SparkGone
from .failures import SPARK_ERRORS, known_meaning, ran_out_of_memory, spark_errors, without_traces
from .java import prepare_java
from .memory import heap

_CORES = max(2, os.cpu_count() or 1)
FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java's first compiler alone. Its default of 48 MB for compiled code is full after a few analyses, and Java then fails
with `Out of space in CodeCache`.
"""
# The second one, too, at forty times its usual thresholds: for what each event goes through, not for what makes plans.
_BOTH_COMPILERS = (
    "-XX:Tier4InvocationThreshold=200000 -XX:Tier4MinInvocationThreshold=24000 -XX:Tier4CompileThreshold=600000 "
    "-XX:Tier4BackEdgeThreshold=1600000"
)
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",  # a rerun replaces the days it covers, and no others
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # a job to list files costs more than listing
    # Otherwise a union whose children are partitioned alike lets its reader do without a shuffle; but Spark 4.3 forgets
    # that they are once it reads one of them from an exchange elsewhere in the plan, and then takes them one by one.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",  # groups; beyond that a task sorts its rows
    "spark.ui.showConsoleProgress": "false",
    # For each column it would look up the line of Python, and tell Java: half of Python's time in an analysis.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
ANALYSIS = {
    "spark.sql.adaptive.enabled": "false",  # a job for each exchange, between which a core had nothing to do
    # What a join sends to all tasks may take long to calculate: after 300 s, the default, an analysis of ten million
    # events failed on a busy machine.
    "spark.sql.broadcastTimeout": "-1",
    "spark.sql.files.openCostInBytes": "65536",  # hourly files are small: with 4 MB, a task has 30
    # Each column's values would be looked up to see how they can be packed; what finds no room in memory is on disk.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # which are a partition each
    # Otherwise the optimizer itself calculates, row by row, whatever is first made of the rows that Python read.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.locality.wait": "0s",  # a free core fetches its bytes sooner than the core that has them is free again
}
"""Of each analysis; docs/analytics-speed.md has what each saves."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.optimizer.disableHints": "true",  # what is in one partition need not be shuffled
}
"""For few events, compiling the plans takes longer than the work itself."""
LIVE = {"spark.sql.shuffle.partitions": "2"}
"""For a query that counts by minute, of which there are few: each partition's state takes some files in each batch."""
FEW_EVENTS, MANY_EVENTS = 200_000, 2_000_000
"""With fewer than the first number, the driver reads the events, and on one machine plans are not compiled. From the
second on, Java's second compiler saves more than it takes.
"""
_OF_A_TASK = 500_000
"""Events, on one machine. With 250,000, an analysis of ten million took an eighth more, as each task has its price."""
_ELSEWHERE_OF_A_TASK, _LEAST_ELSEWHERE = 250_000, 4
"""Events of a task, and tasks at least where a cluster works, of whose cores nothing is known before Spark starts: so
few events that those of a worker that is lost are soon done again, and so many that a task is worth sending.
"""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # `spark-submit` sets it
_HEAP = "spark.driver.memory"  # on one machine the driver does the work
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",  # the host's name need not resolve
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "16",  # 200, the default, are for a cluster; on 2 cores they took twice the time
}
_OF_A_SESSION = frozenset(key for key in (SETTINGS | ANALYSIS | INTERPRETED | _LOCAL) if key.startswith("spark.sql."))


def settings_for(events: int, master: str | None = None) -> Mapping[str, str]:
    """The settings for an analysis of this many events. `master`, or `spark-submit`: there may be a cluster."""
    here = master is None and _SUBMITTED not in os.environ
    least, of_a_task = (_CORES, _OF_A_TASK) if here else (_LEAST_ELSEWHERE, _ELSEWHERE_OF_A_TASK)
    partitions = str(max(least, math.ceil(events / of_a_task)))
    compilers = FIRST_COMPILER if events < MANY_EVENTS else _BOTH_COMPILERS
    settings = ANALYSIS | {
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.files.minPartitionNum": partitions,
        # Defaults: what the user or the cluster sets as `extraJavaOptions` holds, too.
        "spark.driver.defaultJavaOptions": compilers,
        "spark.executor.defaultJavaOptions": compilers,
    }
    return settings | INTERPRETED if here and events < FEW_EVENTS else settings


@contextmanager
def session(
    master: str | None = None,
    *,
    name: str = "streamdq",
    settings: Mapping[str, str] | None = None,
    memory: str | None = None,
    verbose: bool = False,
) -> Iterator[SparkSession]:
    """Spark for as long as the block lasts. A Java process that is started for it stays until this process ends, as is
    usual with PySpark; a later session in this process has it, too, and the heap that it has.

    `master` None: all cores of this machine; under `spark-submit`, where the Java process is there already, that of
    its command line. `sc://HOST:PORT`: a Spark Connect server. `memory`: the heap of the process that does the work,
    such as 4g; None: what suits this machine, or on a cluster what that says. What Spark logs goes to a file, which is
    kept only if it failed; `verbose`: to stderr.

    Raises:
        InvalidInput: a master or memory was named here and to `spark-submit` or a server, the memory is no size, or
            Java runs in this process already with another.
        JavaMissing: see `prepare_java`.
        AnalysisError: Spark does not start, or does not answer.
        SparkFailed: from within the block, with the name of the log.
    """
    wanted = {**SETTINGS, **(settings or {}), "spark.app.name": name}
    with nullcontext() if verbose else without_traces():
        if _SUBMITTED in os.environ:
            _refuse("spark-submit, which has started Spark already", **{"--master": master, "--memory": memory})
            yield from _joined(wanted if verbose else wanted | {"spark.log.level": "OFF"})
        elif master is not None and remote.is_remote(master):
            _refuse("the server, which runs already", **{"--memory": memory})
            yield from _served(master, wanted)
        else:
            prepare_java()
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run the Python that has streamdq
            yield from _begun(_placed(wanted, master or "local[*]", memory), verbose)


def _refuse(whom: str, **options: str | None) -> None:
    for option, value in options.items():
        if value:
            raise InvalidInput(f"{option} {value}: give it to {whom}")


def _placed(wanted: dict[str, str], master: str, memory: str | None) -> dict[str, str]:
    """The settings, with where Spark runs, and what that needs."""
    wanted["spark.master"] = master
    if not master.startswith("local"):
        return wanted | ({"spark.executor.memory": heap(memory)} if memory else {})
    if memory or not (_HEAP in wanted or "SPARK_DRIVER_MEMORY" in os.environ):
        wanted[_HEAP] = heap(memory)
    return _LOCAL | wanted


def _served(url: str, wanted: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session of a Spark Connect server."""
    with pandas_unnoticed():
        spark = remote.connected(url)
    # The failure itself is reported. For the whole process: threads that outlast the session make its last calls.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]", UserWarning)
    try:
        with pandas_unnoticed(), spark_errors(url):
            _set(spark, wanted)
        yield spark
    except SparkGone as error:
        remote.give_up(spark)
        raise SparkFailed(f"{error.what}: {remote.GONE}") from error
    finally:
        with suppress(*SPARK_ERRORS):
            spark.stop()


def _joined(wanted: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session of the Java process that `spark-submit` started."""
    spark = _created(wanted)
    try:
        yield spark
    finally:
        spark.stop()


def _begun(wanted: Mapping[str, str], verbose: bool) -> Iterator[SparkSession]:
    """A session of the Java process that PySpark starts for this process."""
    java = _java_for(wanted)
    spark = _start(wanted, java, verbose)
    try:
        yield spark
    except SparkGone as error:
        raise SparkFailed(java.noted(f"{error.what}: {ran_out_of_memory(java.logged()) or error.meaning}")) from error
    except SparkFailed as error:
        raise SparkFailed(java.noted(str(error))) from error
    finally:
        _stop(spark)


def _start(wanted: Mapping[str, str], java: _Java, verbose: bool) -> SparkSession:
    try:
        with java.log.open("a", encoding="utf-8") as log, _started_processes_write_to(2 if verbose else log.fileno()):
            java.logging = java.logging or not verbose
            return _created(wanted)
    except Exception as error:  # py4j wraps whatever Java threw
        meaning = known_meaning(java.logged())
        raise AnalysisError(java.noted(f"Spark did not start{': ' if meaning else ''}{meaning}")) from error


def _created(wanted: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in wanted.items():
        if key not in _OF_A_SESSION:  # what is given here is the default of all later sessions, too
            builder = builder.config(key, value)
    with pandas_unnoticed():
        spark = builder.getOrCreate()
    _set(spark, {key: value for key, value in wanted.items() if key in _OF_A_SESSION})
    return spark


def _set(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Sets what can be set in a session that runs."""
    for key, value in wanted.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)


def _stop(spark: SparkSession) -> None:
    """Ends the session, even if its Java process has ended."""
    with suppress(*SPARK_ERRORS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark", RuntimeWarning)
        spark.stop()


@contextmanager
def pandas_unnoticed() -> Iterator[None]:
    """Suppresses the warnings that Spark gives about pandas when it starts; pandas is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


# -- the Java process


@dataclass(slots=True)
class _Java:
    """The Java process of this process. `log`: the file of what it writes, if it is `logging`; the file is removed when
    this process ends, unless a failure has named it.
    """

    log: Path
    heap: str | None
    logging: bool = False
    named: bool = False

    def logged(self) -> str:
        return self.log.read_text(errors="replace", encoding="utf-8")

    def noted(self, failure: str) -> str:
        """The failure, and where the log is."""
        self.named = self.logging
        return f"{failure}. What Spark logged is in {self.log}" if self.logging else failure

    def remove_log(self) -> None:
        if not self.named:
            self.log.unlink(missing_ok=True)


_java: list[_Java] = []


def _java_for(wanted: Mapping[str, str]) -> _Java:
    if not _java:
        handle, name = tempfile.mkstemp(prefix="streamdq-spark-", suffix=".log")
        os.close(handle)
        _java.append(_Java(Path(name), wanted.get(_HEAP)))
        atexit.register(_java[0].remove_log)
    has, asked = _java[0].heap, wanted.get(_HEAP)
    if asked and has and asked != has:
        raise InvalidInput(f"memory: Java runs in this process with {has} already; {asked} needs a new process")
    return _java[0]


@contextmanager
def _started_processes_write_to(file: int) -> Iterator[None]:
    """Whatever a process writes that is started within the block, to stdout or stderr, goes to this file. What Python
    writes here goes on to where it went.
    """
    target = os.dup(file)
    with ExitStack() as stack:
        stack.callback(os.close, target)
        for number, stream, redirect in ((1, sys.stdout, redirect_stdout), (2, sys.stderr, redirect_stderr)):
            try:
                own = os.dup(number)
            except OSError:  # it is closed
                stack.callback(os.close, number)
            else:
                stack.callback(os.close, own)
                stack.callback(os.dup2, own, number)
                if _number_of(stream) == number:
                    stream.flush()
                    copy = open(own, "w", encoding=stream.encoding, buffering=1, closefd=False)  # noqa: SIM115
                    stack.enter_context(copy)
                    stack.enter_context(redirect(copy))
            os.dup2(target, number)
        yield


def _number_of(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno() if stream else None
    except (OSError, ValueError, AttributeError):  # no file
        return None
