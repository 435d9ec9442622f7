"""A standalone Spark cluster on this machine, from the classes of the installed PySpark; ended by pid."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from streamdq_spark.java import prepare_java
from streamdq_spark.session import FIRST_COMPILER
from tests.children import child
from tests.waiting import until

SPARK_HOME = Path(pyspark.__file__).parent
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer(NamedTuple):
    url: str
    group: int  # of its processes
    log: Path


def environment() -> dict[str, str]:
    """What Spark's own scripts need to run on the loopback interface alone."""
    found = dict(os.environ)
    prepare_java(found)
    for name in ("PYTHONPATH", "PYSPARK_PYTHON"):
        found.pop(name, None)
    return found | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """One master and so many workers of one core; yields the master's URL when all workers have joined."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = folder / "master.log"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(daemon(MASTER, arguments, log))
        until(lambda: "Starting Spark master at" in log.read_text(), "the master to start")
        for n in range(workers):
            arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            arguments += ["--work-dir", str(folder / f"work{n}"), url]
            stack.enter_context(daemon(WORKER, arguments, folder / f"worker{n}.log"))
        until(lambda: log.read_text().count("Registering worker") == workers, "the workers to join")
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """A Spark Connect server on two cores, whose Python is this one; yields it when it answers."""
    port, log = free_port(), folder / "connect.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": FIRST_COMPILER,
    }  # fmt: skip
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", *words]
    command += ["--class", CONNECT, "spark-internal"]
    others = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path), "SPARK_DAEMON_MEMORY": "1g"}
    with (
        log.open("w") as out,
        child(command, env=environment() | others, cwd=folder, stdout=out, stderr=out) as process,
    ):
        until(lambda: "Spark Connect server started at" in log.read_text(), "the server to start")
        yield ConnectServer(f"sc://127.0.0.1:{port}", process.pid, log)


@contextmanager
def daemon(name: str, arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as out:
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, *arguments]
        with child(command, env=environment(), stdout=out, stderr=subprocess.STDOUT) as process:
            yield process


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
