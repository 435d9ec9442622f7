"""Spark starts with what the analysis needs, and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamdq_spark.session import SETTINGS, _started_processes_write_to, settings_for
from tests.spark.shared import GIVEN_UP_S
from tests.turns import others_later

TWICE = """
import sys
from streamdq.errors import InvalidInput
from streamdq_spark.session import session, settings_for

with session("local[1]", settings=settings_for(1)) as spark:
    print(spark.range(10).count(), spark.conf.get("spark.sql.adaptive.enabled"))
with session("local[1]") as spark:
    print(spark.range(20).count(), spark.conf.get("spark.sql.adaptive.enabled"))
try:
    with session("local[1]", memory="555m"):
        pass
except InvalidInput as error:
    print(error)
"""


def test_it_has_the_settings_that_the_analysis_needs(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in SETTINGS} == SETTINGS
    of_small = {key: value for key, value in settings_for(1).items() if key.startswith("spark.sql.")}
    assert {key: spark.conf.get(key) for key in of_small} == of_small
    assert spark.range(10).count() == 10


def test_what_a_started_process_writes_goes_to_the_log_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", "echo child out; echo child err >&2"]
    with (tmp_path / "log").open("w") as log, _started_processes_write_to(log.fileno()):
        subprocess.run(command, check=True)
    subprocess.run(command, check=True)
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["child err", "child out"]
    assert capfd.readouterr() == ("child out\n", "child err\n")


@pytest.mark.parametrize("closed", others_later(["", ">&-", "2>&-"], ""))
def test_what_python_writes_meanwhile_is_seen(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import subprocess, sys\n"
        "from streamdq_spark.session import _started_processes_write_to as to\n"
        "with open('log', 'w') as log, to(log.fileno()):\n"
        "    for stream in (sys.stdout, sys.stderr):\n"
        "        if stream: stream.write('seen\\n')\n"
        "    subprocess.run(['sh', '-c', 'echo child; echo child >&2'])\n"
        "    log.seek(0, 2)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"{sys.executable} program.py {closed}"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=GIVEN_UP_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if closed.startswith(">") else "seen\n")
    assert done.stderr == ("" if "2>" in closed else "seen\n")
    assert (tmp_path / "log").read_text() == "child\nchild\n"


@pytest.mark.thorough
@pytest.mark.usefixtures("class_archive")
def test_a_second_session_has_the_java_of_the_first_and_settings_of_its_own(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", TWICE], env=environment, capture_output=True, text=True, timeout=GIVEN_UP_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second, output = done.stdout.splitlines()
    assert (first, second) == ("10 false", "20 true")
    assert "555m needs a new process" in output
    assert not list(tmp_path.glob("streamdq-spark-*.log"))
