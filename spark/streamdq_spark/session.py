"""Starting Spark, quietly, and ending it with all that it started."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streamdq.errors import InvalidInput

from .errors import AnalysisError
from .java import prepare_java

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",  # a rerun replaces the days it covers, and no others
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",  # the data source takes filters on time
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # a job to list files costs more than listing
    "spark.ui.showConsoleProgress": "false",
}
SMALL = {  # for a few thousand events: compiling the plans costs more than interpreting them, half of all CPU time
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",  # the host's name need not resolve
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "16",  # 200, the default, are for a cluster; on 2 cores they took twice the time
}


@contextmanager
def session(
    master: str | None = None, *, name: str = "streamdq", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Spark for as long as the block lasts; the Java process started for it ends with it.

    `master` None: all cores of this machine; under `spark-submit`, where the Java process is there already, that of
    its command line. What Spark logs goes to a file, which is kept only if it could not start.

    Raises:
        InvalidInput: a master was named here and to `spark-submit`.
        JavaMissing: see `prepare_java`.
        AnalysisError: Spark does not start.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAppName(name).setAll([*SETTINGS.items(), *(settings or {}).items()])
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        if master:
            raise InvalidInput(f"--master {master}: give it to spark-submit, which has started Spark already")
        yield from _joined(conf)
        return
    prepare_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run the Python that has streamdq
    master = master or "local[*]"
    conf.setMaster(master)
    if master.startswith("local"):
        conf.setAll([(key, value) for key, value in _LOCAL.items() if not conf.contains(key)])
    with tempfile.NamedTemporaryFile("w+", prefix="streamdq-spark-", suffix=".log", delete=False) as log:
        spark = _start(conf, log)
        try:
            yield spark
        finally:
            _stop(spark)
            Path(log.name).unlink(missing_ok=True)


def _joined(conf: SparkConf) -> Iterator[SparkSession]:
    """The session of the Java process that `spark-submit` started."""
    builder = SparkSession.builder
    for key, value in conf.getAll():
        builder = builder.config(key, value)
    with _pandas_unnoticed():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _pandas_unnoticed() -> Iterator[None]:
    """As it starts, Spark looks at what pandas there is, and warns; nothing here asks it for pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _start(conf: SparkConf, log: IO[str]) -> SparkSession:
    try:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    except PySparkException as error:
        raise AnalysisError(f"Spark did not start: its log is {log.name}") from error
    try:
        with _pandas_unnoticed():
            context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:  # py4j wraps whatever Java threw
        _end(gateway)
        raise AnalysisError(f"Spark did not start on {conf.get('spark.master')}: its log is {log.name}") from error
    return SparkSession(context)


def _stop(spark: SparkSession) -> None:
    gateway = SparkContext._gateway
    spark.stop()
    _end(gateway)


def _end(gateway: Any) -> None:
    """Ends the Java process; a session started later launches another."""
    gateway.shutdown()
    gateway.proc.stdin.close()  # which the Java process takes as the end
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
