"""One Spark for the whole suite: starting it costs seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamdq.cli import app as cli
from streamdq_spark.session import SMALL, session
from tests.conftest import BINARIES
from tests.servers import Pool, Server
from tests.spark.classes import ClassArchive

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PRELOADED = Path(__file__).parent / "preloaded"
Command = Callable[..., tuple[int, str, str]]
"""Runs a command in the session that all share: its exit code, what it prints, and what it says on stderr."""


@pytest.fixture(scope="session")
def class_archive(pytestconfig: pytest.Config) -> Iterator[ClassArchive]:
    """What Spark's Java processes take their classes from if they are started from now on: the archive that the first
    run with a shared session left beside pytest's cache.
    """
    folder = pytestconfig.rootpath / ".pytest_cache" / "spark"
    folder.mkdir(parents=True, exist_ok=True)
    archive = ClassArchive(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", archive.use)
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", f"-XX:TieredStopAtLevel=1 {archive.use}")
        yield archive


@pytest.fixture(scope="session")
def spark(class_archive: ClassArchive) -> Iterator[SparkSession]:
    settings = {**SMALL, JAVA_OPTIONS: f"{SMALL[JAVA_OPTIONS]} {class_archive.leave}"}
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join([str(PRELOADED), *sys.path]))
            running = stack.enter_context(session("local[2]", name="streamdq-tests", settings=settings))
        yield running


@pytest.fixture
def newest(servers: Pool) -> Server:
    """The newest of the machine's Redis servers, empty: for what is about Spark and not about Redis."""
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    server = servers[BINARIES[-1]]
    server.flush()
    return server


@pytest.fixture
def command(spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr("streamdq_spark.session.session", lambda _master, **_: nullcontext(spark))

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run
