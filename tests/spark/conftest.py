"""One Spark for the whole suite: to start it takes seconds."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

import pytest
from pyspark.sql import SparkSession

from streamdq.cli import app as cli
from streamdq_spark.session import FIRST_COMPILER
from tests.spark.classes import ClassArchive
from tests.spark.shared import GIVEN_UP_S, SharedSpark

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
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", f"{FIRST_COMPILER} {archive.use}")
        yield archive


@pytest.fixture(scope="session")
def shared_spark(class_archive: ClassArchive) -> Iterator[SharedSpark]:
    """For fixtures that serve several tests."""
    _shared.append(SharedSpark(class_archive.leave))
    yield _shared[0]
    _shared.pop().end()


@pytest.fixture
def spark(shared_spark: SharedSpark) -> SparkSession:
    return shared_spark.session()


_shared: list[SharedSpark] = []


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """Before a test is given up, Java is ended. Otherwise what it is still to answer would be taken for the answer to
    the next call; and who waits for it, as PySpark does on its way out of the test, would wait for ever.
    """
    done = yield
    give_up = signal.getsignal(signal.SIGALRM)
    if callable(give_up):

        def end_java_and_give_up(number: int, frame: FrameType | None) -> None:
            for shared in _shared:
                shared.end_java()
            give_up(number, frame)

        signal.signal(signal.SIGALRM, end_java_and_give_up)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, object, object]:
    if _shared and call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
        _shared[0].failed()
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/spark/") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(GIVEN_UP_S + 60))


@pytest.fixture
def command(shared_spark: SharedSpark, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr("streamdq_spark.session.session", lambda _master, **_: nullcontext(shared_spark.session()))

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run
