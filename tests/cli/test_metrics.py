"""/metrics of real workers and of the exporter, over HTTP."""

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamdq import Queue
from streamdq.metrics import declared
from tests.cli.conftest import Run, Start
from tests.servers import Server, free_port
from tests.waiting import HANG_S, until

WORKER = """
from streamdq import Bury, Job, Worker

worker = Worker(concurrency=20)

@worker.handler("t", ttr="20s", retry="0 0")
async def handle(body: dict, job: Job) -> None:
    if body.get("fails"):
        raise RuntimeError(f"secretclass {job.id} {job.url} {body}")
    if body.get("bury"):
        raise Bury(f"secretreason {job.id}")
"""
NAMESPACE = "streamdq"
FROM_REDIS = {metric.name for metric in declared.FROM_REDIS}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    with Queue(server.url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKER)


def port_of(process: subprocess.Popen[str]) -> int:
    """Where it serves, as it says itself."""
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "metrics served":
            return int(event["port"])
    raise AssertionError("it ended without serving metrics")


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as reply:
        assert reply.status == 200
        return str(reply.read().decode())


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(port: int, name: str, **labels: str) -> float:
    return samples(scrape(port)).get((name, frozenset({"namespace": NAMESPACE, **labels}.items())), 0)


def lint(text: str) -> None:
    """Prometheus's own opinion of names, units and help."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_worker_serves_what_it_did_and_no_id_url_or_error(start: Start, server: Server, queue: Queue) -> None:
    for i in range(20):
        queue.enqueue("t", {"secretbody": i}, id=f"secretid-{i}", url="https://secreturl.example/x")
    queue.enqueue("t", {"fails": 1}, id="secretid-fails", url="https://secreturl.example/y")
    queue.enqueue("t", {"bury": 1}, id="secretid-bury")
    queue.enqueue("t", "secretmisfit", id="secretid-misfit")

    process = start("--url", server.url, "worker", "shop:worker", "--metrics-port", "0", "--exporter")
    port = port_of(process)
    labels = {"namespace": NAMESPACE, "topic": "t", "group": "default"}
    text = ""

    def all_has_ended() -> bool:
        nonlocal text
        text = scrape(port)
        counted = "streamdq_job_duration_seconds_count", frozenset(labels.items())
        gone = "streamdq_jobs", frozenset({"namespace": NAMESPACE, "topic": "t", "state": "dead"}.items())
        return (samples(text).get(counted), samples(text).get(gone)) == (25, 3)

    until(all_has_ended, "all has ended, and is counted")
    found = samples(text)
    process.terminate()
    process.communicate(timeout=HANG_S)

    def of(name: str, **more: str) -> float:
        return found[name, frozenset((labels | more).items())]

    assert of("streamdq_job_attempts_total", outcome="done") == 20
    assert of("streamdq_job_attempts_total", outcome="retry") == 2
    assert of("streamdq_job_attempts_total", outcome="dead") == 3
    assert [of("streamdq_job_retries_total", step=step) for step in ("1", "2")] == [1, 1]
    assert [of("streamdq_jobs_dead_total", reason=reason) for reason in ("buried", "invalid")] == [1, 1]
    for name in ("lateness", "wait", "duration"):
        assert of(f"streamdq_job_{name}_seconds_count") == 25
    assert of("streamdq_job_time_to_finish_seconds_count") == 20
    assert found["streamdq_jobs", frozenset({("namespace", NAMESPACE), ("topic", "t"), ("state", "dead")})] == 3
    assert of("streamdq_consumers") == 1
    lint(text)
    assert "secret" not in text


def test_the_exporter_serves_every_gauge_and_says_when_redis_is_gone(
    start: Start, server: Server, queue: Queue
) -> None:
    queue.enqueue("t", {}, delay="30s")
    queue.schedule("t", every="1h")
    with queue.flow("f") as flow:
        flow.enqueue("t", {}, delay="30s")
    env = {**os.environ, "STREAMDQ_CALL_TIMEOUT_S": "0.5"}
    process = start("--url", server.url, "exporter", "--port", "0", env=env)
    port = port_of(process)

    until(lambda: {name for name, _ in samples(scrape(port))} >= FROM_REDIS, "every gauge is there")

    server.kill()
    without = samples(scrape(port))
    assert without["streamdq_up", frozenset({("namespace", NAMESPACE)})] == 0
    left = {name for name, _ in without} & FROM_REDIS
    assert left == {"streamdq_up", "streamdq_build_info"}
    assert without["streamdq_redis_errors_total", frozenset({("namespace", NAMESPACE), ("kind", "connection")})] > 0

    server.start()
    until(lambda: value(port, "streamdq_up") == 1, "Redis is seen again")
    lint(scrape(port))
    process.terminate()
    assert process.wait(timeout=HANG_S) == 0


@pytest.mark.thorough
def test_totals_of_processes_outlive_a_killed_one(start: Start, server: Server, queue: Queue, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    process = start(
        "--url", server.url, "worker", "shop:worker", "--processes", "2", "--metrics-port", "0", env=env
    )  # fmt: skip
    port = port_of(process)
    done = {"topic": "t", "group": "default", "outcome": "done"}

    def work(total: int) -> None:
        queue.enqueue_many("t", ({"body": {"n": i}} for i in range(60)))
        until(lambda: queue.stats("t").topics["t"].groups["default"].done == total, "all are done")
        until(lambda: value(port, "streamdq_job_attempts_total", **done) == total, "and counted")

    until(lambda: queue.stats().topics and queue.stats("t").topics["t"].groups["default"].consumers == 2, "two")
    (own,) = folder.iterdir()
    (own / "counter_5.db").touch()  # of a process that was killed as it made its file
    work(60)
    family = psutil.Process(process.pid).children()
    family[0].kill()
    until(lambda: len(now := psutil.Process(process.pid).children()) == 2 and family[0] not in now, "another one")
    work(120)
    late = partial(value, port, "streamdq_job_lateness_seconds_count", topic="t", group="default")
    until(lambda: late() == 120, "their lateness is counted")
    assert {file.name for file in own.glob("counter_*.db")} == {f"counter_{number}.db" for number in (0, 1, 5)}
    lint(scrape(port))
    process.send_signal(signal.SIGTERM)

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err


def test_what_can_not_be_served_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        for command in (["exporter", "--port"], ["worker", "shop:worker", "--metrics-port"]):
            result = run(*command, str(taken))
            assert (result.code, result.out) == (2, "")
            assert f"can't listen on 127.0.0.1:{taken}" in result.err
    result = run("worker", "shop:worker", "--exporter")
    assert result.code == 2
    assert "--metrics-port" in result.err
