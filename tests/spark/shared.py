"""The Spark that all tests share. A test that is given up takes no other along: whenever one has left the Java process
unusable, the next test gets a new one.

Only files and rows outlast a test. A DataFrame that is kept for a later one may be of a Java process that has ended.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from streamdq_spark.session import session, settings_for

GIVEN_UP_S = 1200
"""When a test is, and what it has started. On a busy machine Spark needs minutes for what it does in seconds."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PRELOADED = Path(__file__).parent / "preloaded"


class SharedSpark:
    """Starts Spark when it is first asked for. ``leave``: more options of Java."""

    def __init__(self, leave: str = "") -> None:
        self._settings = {**settings_for(1), _JAVA_OPTIONS: leave}
        self._running = ExitStack()
        self._session: SparkSession | None = None
        self._in_doubt = False

    def session(self) -> SparkSession:
        """A session that works."""
        if self._session and not self._works(self._session):
            self._forget()
        if not self._session:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", os.pathsep.join([str(_PRELOADED), *sys.path]))
                started = session("local[2]", name="streamdq-tests", settings=self._settings)
                self._session = self._running.enter_context(started)
        return self._session

    def failed(self) -> None:
        """A test failed: who knows in what state it has left Spark."""
        self._in_doubt = True

    def end(self) -> None:
        self._running.close()

    def end_java(self) -> None:
        """So that all who wait for an answer of it get an error, and the next test a new one."""
        if process := java():
            process.kill()
            process.wait()

    def _forget(self) -> None:
        """What PySpark can't: with the process it started first it would talk for ever."""
        self.end_java()
        with suppress(Exception):  # whatever it says of a Java that is gone
            self._running.close()
        gateway = SparkContext._gateway
        if gateway:
            gateway.shutdown_callback_server()
            gateway.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        self._session, self._in_doubt = None, False

    def _works(self, spark: SparkSession) -> bool:
        process = java()
        if process is None or process.poll() is not None:
            return False
        if self._in_doubt:
            expected = random.randrange(10**9)
            try:
                for query in spark.streams.active:
                    query.stop()
                self._in_doubt = spark.sql(f"SELECT {expected}").first() != (expected,)
            except Exception:
                return False
        return not self._in_doubt


def java() -> subprocess.Popen[bytes] | None:
    """The process that PySpark has started."""
    gateway = SparkContext._gateway
    found: subprocess.Popen[bytes] | None = gateway.proc if gateway else None
    return found
