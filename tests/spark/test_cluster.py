"""The same job everywhere: sent to a standalone cluster with spark-submit, where streamdq is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import files, requires
from pathlib import Path

import pyarrow as pa
import pytest
import redis
from packaging.requirements import Requirement

from streamdq import Queue
from streamdq_spark.questions import QUESTIONS
from streamdq_spark.session import FIRST_COMPILER
from tests.servers import Server
from tests.spark import plain
from tests.spark.cluster import SPARK_HOME, environment, standalone_cluster
from tests.spark.dumps import as_row, write_dump
from tests.spark.frames import assert_same, rows_of, written
from tests.spark.logs import random_log
from tests.spark.shared import GIVEN_UP_S

JOB = Path(__file__).parents[2] / "spark" / "analyze.py"
# Plans are compiled here, other than in the rest of the suite.
QUICK = (
    "spark.sql.shuffle.partitions=2",
    "spark.locality.wait=0",
    "spark.ui.enabled=false",
    f"spark.driver.extraJavaOptions={FIRST_COMPILER}",
)
READ = """
import sys
from pyspark.sql import functions as F
from streamdq_spark.session import session
from streamdq_spark.source import register
with session() as spark:
    register(spark)
    rows = spark.read.format("streamdq").option("url", sys.argv[1]).option("rows_per_partition", 10).load()
    parts = rows.select(F.spark_partition_id()).distinct()
    print(rows.count(), parts.count() > 1, spark.conf.get("spark.master"))
"""


pytestmark = [
    pytest.mark.usefixtures("class_archive"), pytest.mark.thorough
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose Python has all that streamdq needs, and not streamdq: a folder that a .pth file adds is no
    site directory, so that none in it leads to a checkout.
    """
    home = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=GIVEN_UP_S)
    folders = {str(Path(module.__file__ or "").parents[1]) for module in (pa, redis)} | {str(SPARK_HOME.parent)}
    (site,) = home.glob("lib/python*/site-packages")
    (site / "needed.pth").write_text("\n".join(folders))
    python = str(home / "bin" / "python")
    found = environment() | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    there = subprocess.run(
        [python, "-c", "import streamdq.errors"], env=found, cwd=home, capture_output=True, timeout=GIVEN_UP_S
    )
    if there.returncode == 0:
        pytest.skip("streamdq is installed beside the packages it needs")
    return found


@pytest.fixture(scope="module")
def archive(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What --py-files takes: a wheel is a zip file."""
    zipped = tmp_path_factory.mktemp("py-files") / "streamdq.zip"
    zipped.write_bytes(wheel.read_bytes())
    return zipped


@pytest.fixture(scope="module")
def naked_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without any packages: Spark brings PySpark along."""
    home = tmp_path_factory.mktemp("naked")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=GIVEN_UP_S)
    return str(home / "bin" / "python")


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`deps.tar`, as of `pip install --target deps 'streamdq[analytics]'`: the wheel, and what it needs, as it is
    installed here.
    """
    deps = tmp_path_factory.mktemp("packages") / "deps"
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(deps)
    for name in _needed("streamdq", {"analytics"}):
        for file in files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (deps / file).parent.mkdir(parents=True, exist_ok=True)
                (deps / file).symlink_to(file.locate())
    with tarfile.open(deps.with_suffix(".tar"), "w", dereference=True) as tar:
        for entry in deps.iterdir():
            tar.add(entry, arcname=entry.name)
    return deps.with_suffix(".tar")


def _needed(name: str, extras: set[str]) -> set[str]:
    """The packages that pip would install for it, beside itself."""
    found: set[tuple[str, str]] = set()
    waiting = {(name, extra) for extra in ("", *extras)}
    while waiting:
        one, extra = asked = waiting.pop()
        found.add(asked)
        for wanted in map(Requirement, requires(one) or ()):
            if not wanted.marker or wanted.marker.evaluate({"extra": extra}):
                waiting |= {(wanted.name, of_it) for of_it in ("", *wanted.extras)} - found
    return {one for one, _ in found} - {name}


def submit(environ: dict[str, str], cwd: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    executors = f"spark.executor.extraJavaOptions={FIRST_COMPILER} {environ['SPARK_SUBMIT_OPTS']}"
    settings = [word for setting in (*QUICK, executors) for word in ("--conf", setting)]
    command = [SPARK_HOME / "bin" / "spark-submit", *settings, *arguments]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=GIVEN_UP_S)


TOO_SPARSE = ("anomalies", "incidents", "forecast", "forecast_accuracy", "capacity", "budget_incidents", "flows")
"""Tables that say nothing of five Mondays with so few jobs, of which none is part of a flow."""


def test_a_cluster_s_tables_are_those_of_the_plain_calculation(
    cluster: str, bare_python: dict[str, str], archive: Path, tmp_path: Path
) -> None:
    """As those of one machine are (test_questions.py). All of them, to the row: five Mondays with failures, losses and
    ids that are used again.
    """
    log = [one for one in random_log(seed=7, jobs=900) if as_row(one)["finished"].weekday() == 0]
    write_dump(tmp_path / "dump", [as_row(one) for one in log], hours_each=24)
    job: list[str | Path] = [JOB, tmp_path / "dump", "--output", tmp_path / "out", "--json"]
    done = submit(bare_python, tmp_path, "--master", cluster, "--py-files", archive, *job, "--report", "report.html")
    assert done.returncode == 0, done.stdout[-4000:]
    (reported,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert reported["events"] == len(log)
    assert list(reported["tables"]) == list(QUESTIONS)
    for name in QUESTIONS:
        wanted = getattr(plain, name)(log)
        assert bool(wanted) == (name not in TOO_SPARSE)
        assert reported["tables"][name] == len(wanted)
        assert_same(rows_of(written(tmp_path / "out" / name)), wanted)
    report = (tmp_path / "report.html").read_text()
    assert "<h3>Which retries help?</h3>" in report
    assert f"{len(log):,}" in report


def test_workers_that_have_no_packages_get_them_as_an_archive(
    cluster: str, bare_python: dict[str, str], naked_python: str, packages: Path, newest: Server, tmp_path: Path
) -> None:
    """As docs/cluster-analytics.md says: a tar file of a folder that pip has filled."""
    with Queue(newest.url) as queue:
        queue.enqueue("t", 1, id="1", delay="1h")
        queue.cancel("t", "1")
    (tmp_path / "read.py").write_text(READ)
    environ = bare_python | {"PYSPARK_PYTHON": naked_python, "PYTHONPATH": str(packages.with_suffix(""))}
    without = submit(environ, tmp_path, "--master", cluster, "read.py", newest.url)
    assert without.returncode == 1
    assert "ModuleNotFoundError: No module named" in without.stdout + without.stderr
    shipped = ["--archives", f"{packages}#deps", "--conf", "spark.executorEnv.PYTHONPATH=deps"]
    done = submit(environ, tmp_path, "--master", cluster, *shipped, "read.py", newest.url)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.split()[0] == "1"
