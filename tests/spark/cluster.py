"""A standalone Spark cluster on this machine, from the classes of the installed PySpark; ended by pid."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from streamdq_spark.java import prepare_java
from tests.children import child
from tests.servers import until

SPARK_HOME = Path(pyspark.__file__).parent
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


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
        until(lambda: "Starting Spark master at" in log.read_text(), "the master to start", within_s=40)
        for n in range(workers):
            arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            arguments += ["--work-dir", str(folder / f"work{n}"), url]
            stack.enter_context(daemon(WORKER, arguments, folder / f"worker{n}.log"))
        until(lambda: log.read_text().count("Registering worker") == workers, "the workers to join", within_s=40)
        yield url


@contextmanager
def daemon(name: str, arguments: list[str], log: Path) -> Iterator[None]:
    with log.open("w") as out:
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, *arguments]
        with child(command, env=environment(), stdout=out, stderr=subprocess.STDOUT):
            yield


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
