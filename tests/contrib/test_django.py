"""streamdq.contrib.django: in this process with a database of SQLite, and as a project whose commands are run."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from streamdq import Queue, Topic, Worker
from streamdq.testing import Memory, drain, memory
from tests.servers import Server

django = pytest.importorskip("django")
ROOT = Path(__file__).parents[2]


class CloseOrder(BaseModel):
    order_id: int


@pytest.fixture
def server() -> Iterator[Memory]:
    made = memory()
    yield made
    made.close()


@pytest.fixture
def _project(server: Memory, tmp_path: Path) -> Iterator[None]:
    """Django's settings name that server, and a database `shop`."""
    from django.conf import settings
    from django.db import connections
    from django.test import override_settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    given = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "shop.sqlite"}
    connections.settings["shop"] = connections.configure_settings({"default": given, "shop": given})["shop"]
    with override_settings(STREAMDQ_URL=server.url, STREAMDQ_NAMESPACE="ns"):
        yield
    connections["shop"].close()
    del connections["shop"]


@pytest.fixture
def seen(_project: None, server: Memory) -> Iterator[Queue]:
    """A queue of the test's own, to look with."""
    with server.queue("ns") as queue:
        yield queue


@pytest.mark.usefixtures("_project")
def test_one_queue_for_the_process_on_the_settings_server(seen: Queue) -> None:
    from django.test import override_settings

    from streamdq.contrib.django import queue

    queue().enqueue("t", id="a", delay="1h")
    assert seen.get("t", "a") is not None
    assert queue() is queue()
    with override_settings(STREAMDQ_NAMESPACE="other"):
        assert queue().namespace == "other"
        assert queue().get("t", "a") is None
    assert queue().namespace == "ns"


@pytest.mark.usefixtures("_project")
def test_threads_that_ask_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamdq.contrib.django import queue, queues

    both, closed = threading.Barrier(2, timeout=60), []

    class Slow(Queue):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            both.wait()

        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(queues, "Queue", Slow)
    found: list[Queue] = []
    threads = [threading.Thread(target=lambda: found.append(queue())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [queue(), queue()]
    assert len(closed) == 1
    assert closed[0] is not queue()


@pytest.mark.usefixtures("_project")
def test_the_job_is_there_after_the_commit_and_not_before(seen: Queue) -> None:
    from django.db import transaction

    from streamdq.contrib.django import enqueue_on_commit

    with transaction.atomic(using="shop"):
        enqueue_on_commit("order.close", {"order_id": 1}, using="shop", id="a", delay="1h")
        enqueue_on_commit(Topic("order.close", CloseOrder, version=2), CloseOrder(order_id=2), using="shop", id="b")
        enqueue_on_commit("order.close", using="shop", id="c")
        assert seen.get("order.close", "a") is None
    jobs = {id: seen.get("order.close", id) for id in "abc"}
    assert {id: job and job.body for id, job in jobs.items()} == {
        "a": {"order_id": 1}, "b": {"order_id": 2}, "c": {},
    }  # fmt: skip
    assert jobs["a"] is not None
    assert jobs["a"].state == "delayed"


@pytest.mark.usefixtures("_project")
def test_no_job_if_the_transaction_is_rolled_back(seen: Queue) -> None:
    from django.db import transaction

    from streamdq.contrib.django import enqueue_on_commit

    @transaction.atomic(using="shop")
    def fail(id: str) -> None:
        enqueue_on_commit("order.close", using="shop", id=id)
        raise ArithmeticError

    with transaction.atomic(using="shop"):
        enqueue_on_commit("order.close", using="shop", id="kept")
        with pytest.raises(ArithmeticError):
            fail("inner")
    with pytest.raises(ArithmeticError):
        fail("outer")
    enqueue_on_commit("order.close", using="shop", id="without")
    found = [id for id in ("kept", "inner", "outer", "without") if seen.get("order.close", id) is not None]
    assert found == ["kept", "without"]


@pytest.mark.usefixtures("_project")
async def test_fresh_connections_closes_what_is_too_old(server: Memory) -> None:
    from django.db import connections

    from streamdq.contrib.django import fresh_connections

    worker, used = Worker(server.url, "ns"), []

    @worker.handler("order.close")
    @fresh_connections
    def close(order: CloseOrder) -> None:
        """With CONN_MAX_AGE 0, a connection is too old after each attempt."""
        connection = connections["shop"]
        connection.ensure_connection()
        used.append((order, connection))

    with server.queue("ns") as queue:
        queue.enqueue("order.close", {"order_id": 42})
        with server.bind(worker):
            await drain(worker, server.clock, "1m")
    ((order, connection),) = used
    assert order == CloseOrder(order_id=42)
    assert connection.connection is None


@pytest.mark.usefixtures("_project")
def test_fresh_connections_calls_django_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamdq.contrib.django import connections, fresh_connections

    said: list[str] = []
    monkeypatch.setattr(connections, "close_old_connections", lambda: said.append("closed"))

    @fresh_connections
    def fail() -> None:
        said.append("called")
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert said == ["closed", "called", "closed"]


def test_fresh_connections_refuses_async_handlers() -> None:
    from streamdq.contrib.django import fresh_connections

    async def close() -> None: ...

    with pytest.raises(TypeError, match=r"close is async; a handler that uses the ORM is a plain def"):
        fresh_connections(close)


# -- the command, in a project

FILES = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
execute_from_command_line(sys.argv)
""",
    "settings.py": """
import os
from pathlib import Path
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["shop", "streamdq.contrib.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).with_name("db.sqlite")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STREAMDQ_URL = os.environ["SHOP_REDIS"]
STREAMDQ_NAMESPACE = "shop"
STREAMDQ_WORKER = "shop.jobs:worker"
""",
    "shop/__init__.py": "",
    "shop/models.py": """
from django.db import models
class Order(models.Model):
    state = models.CharField(max_length=10, default="open")
""",
    "shop/jobs.py": """
from streamdq import Worker
from streamdq.contrib.django import fresh_connections, queue
from shop.models import Order
worker = Worker()
@worker.handler("order.close")
@fresh_connections
def close(order: dict) -> None:
    Order.objects.create(id=order["order_id"], state=queue().namespace)
""",
    "shop/others.py": "from shop.jobs import worker as other",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.lstrip())
    return tmp_path


def manage(folder: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Typed elsewhere; the environment names another Redis than the settings do."""
    env = {**os.environ, "SHOP_REDIS": url, "STREAMDQ_URL": "redis://127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    run = [sys.executable, str(folder / "manage.py"), *words]
    return subprocess.run(run, env=env, cwd=folder.parent, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "words",
    [
        [],
        pytest.param(["shop.others:other"], marks=pytest.mark.thorough),
        pytest.param(["--processes", "2", "--concurrency=3"], marks=pytest.mark.thorough),
    ],
    ids=["one", "named", "two"],
)
def test_the_command_runs_the_projects_worker(folder: Path, redis_server: Server, words: list[str]) -> None:
    with sqlite3.connect(folder / "db.sqlite") as db:
        db.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY, state VARCHAR(10))")
        with Queue(redis_server.url, "shop") as queue:
            for number in (1, 2):
                queue.enqueue("order.close", {"order_id": number})
        done = manage(folder, redis_server.url, "streamdq_worker", "--burst", *words)
        assert done.returncode == 0, done.stderr
        assert db.execute("SELECT * FROM shop_order ORDER BY id").fetchall() == [(1, "shop"), (2, "shop")]
    db.close()


@pytest.mark.thorough
def test_the_command_passes_on_what_streamdq_says(folder: Path) -> None:
    done = manage(folder, "redis://127.0.0.1:1", "streamdq_worker", "shop.jobs:wroker")
    assert (done.returncode, done.stdout) == (2, "")
    assert "module 'shop.jobs' has no 'wroker'" in done.stderr
    assert "Traceback" not in done.stderr
    done = manage(folder, "redis://127.0.0.1:1", "streamdq_worker", "--concurrency", "0")
    assert done.returncode == 2
    assert "concurrency" in done.stderr


@pytest.mark.thorough
def test_the_command_needs_a_worker(folder: Path) -> None:
    settings = folder / "settings.py"
    settings.write_text(settings.read_text().replace("STREAMDQ_WORKER", "OTHER"))
    done = manage(folder, "redis://127.0.0.1:1", "streamdq_worker")
    assert done.returncode == 1
    assert "which worker? Set STREAMDQ_WORKER" in done.stderr
