"""Starts Spark quietly, and ends it with everything that it started."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streamdq.errors import InvalidInput

from .errors import AnalysisError, SparkFailed
from .failures import known_meaning, without_traces
from .java import prepare_java
from .memory import heap

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",  # a rerun replaces the days it covers, and no others
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",  # the data source takes filters on time
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # a job to list files costs more than listing
    # Otherwise a union whose children are partitioned alike lets its reader do without a shuffle; but Spark 4.3 forgets
    # that they are once it reads one of them from an exchange elsewhere in the plan, and then takes them one by one.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.ui.showConsoleProgress": "false",
    # For each column it would look up the line of Python, and tell Java: half of Python's time in an analysis.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
SMALL = {  # for few events: planning and compiling cost more than the work itself
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # which are a partition each
    "spark.sql.adaptive.enabled": "false",  # no stage is so large that the rest should be planned anew after it
    "spark.sql.codegen.wholeStage": "false",  # compiling the plans was half of all CPU time
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # With the first compiler alone, Java keeps 48 MB of compiled code, and would compile again what it throws away.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}
FEW_EVENTS = 200_000
"""With fewer events, the settings for small data are faster."""
_HEAP = "spark.driver.memory"  # on one machine the driver does the work
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",  # the host's name need not resolve
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "16",  # 200, the default, are for a cluster; on 2 cores they took twice the time
}


def settings_for(events: int) -> Mapping[str, str]:
    """The fastest settings for this many events."""
    return SMALL if events < FEW_EVENTS else {}


@contextmanager
def session(
    master: str | None = None,
    *,
    name: str = "streamdq",
    settings: Mapping[str, str] | None = None,
    memory: str | None = None,
    verbose: bool = False,
) -> Iterator[SparkSession]:
    """Spark for as long as the block lasts; the Java process started for it ends with it.

    `master` None: all cores of this machine; under `spark-submit`, where the Java process is there already, that of
    its command line. `memory`: the heap of the process that does the work, such as 4g; None: what suits this machine,
    or on a cluster what that says. What Spark logs goes to a file, which is kept only if it failed; `verbose`: to
    stderr.

    Raises:
        InvalidInput: a master or memory was named here and to `spark-submit`, or the memory is no size.
        JavaMissing: see `prepare_java`.
        AnalysisError: Spark does not start.
        SparkFailed: from within the block, with the name of the log.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAppName(name).setAll([*SETTINGS.items(), *(settings or {}).items()])
    with nullcontext() if verbose else without_traces():
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            _refuse(**{"--master": master, "--memory": memory})
            yield from _joined(conf, verbose)
            return
        prepare_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run the Python that has streamdq
        _place(conf, master or "local[*]", memory)
        yield from _begun(conf, verbose)


def _refuse(**options: str | None) -> None:
    for option, value in options.items():
        if value:
            raise InvalidInput(f"{option} {value}: give it to spark-submit, which has started Spark already")


def _place(conf: SparkConf, master: str, memory: str | None) -> None:
    """Sets where Spark runs, and what that needs."""
    conf.setMaster(master)
    if not master.startswith("local"):
        if memory:
            conf.set("spark.executor.memory", heap(memory))
        return
    conf.setAll([(key, value) for key, value in _LOCAL.items() if not conf.contains(key)])
    if memory or not (conf.contains(_HEAP) or "SPARK_DRIVER_MEMORY" in os.environ):
        conf.set(_HEAP, heap(memory))


def _begun(conf: SparkConf, verbose: bool) -> Iterator[SparkSession]:
    """A session with its own Java process, which is started and ended."""
    with tempfile.NamedTemporaryFile("w+", prefix="streamdq-spark-", suffix=".log", delete=False) as log:
        spark, keep = _start(conf, sys.__stderr__ if verbose else log, log.name), False
        try:
            yield spark
        except SparkFailed as error:
            keep = not verbose
            raise SparkFailed(f"{error}. What Spark logged is in {log.name}" if keep else str(error)) from error
        finally:
            _stop(spark)
            if not keep:
                Path(log.name).unlink(missing_ok=True)


def _joined(conf: SparkConf, verbose: bool) -> Iterator[SparkSession]:
    """The session of the Java process that `spark-submit` started."""
    builder = SparkSession.builder
    for key, value in conf.getAll():
        builder = builder.config(key, value)
    with pandas_unnoticed():
        spark = builder.getOrCreate()
    if not verbose:
        spark.sparkContext.setLogLevel("OFF")  # failures are reported anyway
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def pandas_unnoticed() -> Iterator[None]:
    """Suppresses the warnings that Spark gives about pandas when it starts; pandas is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _start(conf: SparkConf, out: Any, log: str) -> SparkSession:
    try:
        gateway = launch_gateway(conf, {"stdout": out, "stderr": out})  # type: ignore[no-untyped-call]
    except PySparkException as error:
        raise AnalysisError(_not_started("", log)) from error
    try:
        with pandas_unnoticed():
            context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:  # py4j wraps whatever Java threw
        _end(gateway)
        raise AnalysisError(_not_started(f" on {conf.get('spark.master')}", log)) from error
    return SparkSession(context)


def _not_started(where: str, log: str) -> str:
    told = known_meaning(Path(log).read_text(errors="replace"))
    return f"Spark did not start{where}{': ' if told else ''}{told}. What it logged is in {log}"


def _stop(spark: SparkSession) -> None:
    """Ends the session, even if its Java process has ended."""
    gateway = SparkContext._gateway
    with suppress(Py4JError, ConnectionError), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark", RuntimeWarning)
        spark.stop()
    _end(gateway)


def _end(gateway: Any) -> None:
    """Ends the Java process; a session started later launches another."""
    with suppress(Py4JError, ConnectionError):
        gateway.shutdown()
    with suppress(BrokenPipeError):
        gateway.proc.stdin.close()  # this ends the Java process
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
