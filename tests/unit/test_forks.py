"""What a forked child inherits, it can use: locks that other threads of its parent hold, connections, threads."""

from __future__ import annotations

import ast
import os
import re
import signal
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from streamdq import AsyncQueue, Queue
from streamdq.codec.storage_calls import StorageCalls
from streamdq.embedded import server
from streamdq.exporter.exporter import RedisCollector
from streamdq.forks import ModuleLock, call_in_child, renew_in_child
from streamdq.keys import NamespaceKeys
from streamdq.link import connection
from streamdq.metrics import declared, recorded
from streamdq.threads import HandlerThreads
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]
MAKERS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "SimpleQueue"}
OF_THREADS = {"threading", "queue", "multiprocessing"}
_OF_THREADS = re.compile(rf"^ *(?:import|from) (?:{'|'.join(OF_THREADS)})\b", re.MULTILINE)
"""To parse all files takes a second."""
LIVES_IN_ONE_PROCESS = {
    "streamdq/forks.py:_renew_cached_properties": "renews the locks of properties",
    "streamdq/embedded/server.py:_Use.__init__": "ends its watcher, a thread that a child does not have",
    "streamdq/link/fair_semaphore.py:FairSemaphore.__init__": "belongs to connections, which make a new one",
    "streamdq/link/fair_semaphore.py:FairSemaphore._wait": "of a thread that waits",
    "streamdq/process/log_lines.py:HandedOver.flush": "of a thread that waits",
    "streamdq/process/log_lines.py:LineWriter.flush": "of a thread that waits",
    "streamdq/process/health_checks.py:_repeated": "ends a thread that a child does not have",
    "streamdq/worker/child.py:_Child.__init__": "of a process that only runs handlers, whose children end with them",
    "streamdq/worker/children.py:Child.__init__": "of a worker, which a child of a handler does not run",
    "streamdq/worker/children.py:Children.__init__": "the same",
    "streamdq/worker/children.py:ProcessCall.__init__": "the same",
    "streamdq/link/link_thread.py:LinkThread.__init__": "of the thread that starts it; a child starts its own",
    "streamdq/worker/ends.py:Ends.__init__": "of a worker, which a child of a handler does not run",
    "streamdq/worker/ends.py:EndSender.__init__": "the same",
    "streamdq/process/processes.py:Supervisor.__init__": "a command of its own, which forks nothing",
    "streamdq/process/signals.py:Stop.__init__": "reentrant, and asked by the main thread alone",
    "spark/streamdq_spark/engines/spark.py:SparkAnswers.__init__": "of an analysis, which forks nothing",
    "spark/streamdq_spark/once.py:Once.__init__": "of an analysis, which forks nothing",
    "spark/streamdq_spark/side_by_side.py:_Pieces.__init__": "of an analysis, which forks nothing",
}
"""Places that make a lock which is not renewed, and why nobody misses it."""

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(function: Callable[[], object]) -> int:
    """Calls the function in a forked child; its exit code: 0, 1 if it raised, -SIGALRM if it hangs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(HANG_S))
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class HeldLocks:
    """Locks that another thread holds until the end of the block."""

    def __init__(self, *locks: Any) -> None:
        self._locks = locks

    def __enter__(self) -> None:
        self._release, held = threading.Event(), threading.Event()

        def hold() -> None:
            for lock in self._locks:
                lock.acquire()
            held.set()
            self._release.wait()
            for lock in self._locks:
                lock.release()

        self._thread = threading.Thread(target=hold)
        self._thread.start()
        held.wait()

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._thread.join()


# -- the mechanism


class _Renewed:
    def __init__(self) -> None:
        self.renewed = 0
        renew_in_child(self)

    def after_fork(self) -> None:
        self.renewed += 1


def test_what_is_registered_is_renewed_in_a_child_alone() -> None:
    one = _Renewed()

    def check() -> None:
        assert one.renewed == 1

    assert in_child(check) == 0
    assert one.renewed == 0


def test_it_may_end_before() -> None:
    one = _Renewed()
    gone = weakref.ref(one)
    del one
    assert gone() is None
    assert in_child(lambda: None) == 0


def test_a_module_has_what_belongs_to_it_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr("streamdq.forks._functions", [])
    call_in_child(lambda: called.append(1))

    def check() -> None:
        assert called == [1]

    assert in_child(check) == 0
    assert called == []


def test_a_block_with_a_modules_lock_may_fork() -> None:
    lock = ModuleLock()
    with lock:
        child = os.fork()
    if child == 0:
        with lock:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with lock:
        pass


# -- each part, with every lock of it held by another thread


def locks_of(owner: Any) -> list[Any]:
    kinds = (type(threading.Lock()), type(threading.RLock()))
    found = []
    for value in vars(owner).values():
        if isinstance(value, kinds):
            found.append(value)
        elif type(value).__module__.startswith("streamdq.") and hasattr(value, "__dict__") and value is not owner:
            found += [each for each in locks_of(value) if each not in found]
    return found


def test_queues() -> None:
    with Queue("memory://forks") as queue:
        queue.enqueue("t", {})
        held = locks_of(queue)
        assert queue._mover_lock in held

        def use() -> None:
            queue.enqueue("t", {})
            with queue.take("t", timeout=30) as claim:
                assert claim
            queue.close()

        with HeldLocks(*held):
            assert in_child(use) == 0
        queue.enqueue("t", {})


def test_a_queue_that_is_being_closed_in_its_parent() -> None:
    """Its mover's thread does not exist in the child."""
    queue = Queue("memory://forks-2")
    queue.enqueue("t", {})
    with queue.take("t", timeout=30) as claim:  # starts a mover
        assert claim
    mover, joining, joined = queue._mover, threading.Event(), threading.Event()
    assert mover is not None
    stop = mover.stop

    def stop_late() -> None:
        joining.set()
        joined.wait()
        stop()

    mover.stop = stop_late  # type: ignore[method-assign]
    closing = threading.Thread(target=queue.close)
    closing.start()
    joining.wait()
    try:
        assert in_child(queue.close) == 0
        assert in_child(lambda: queue.enqueue("t", {})) == 0
    finally:
        joined.set()
        closing.join()


def test_a_server_in_memory_that_is_in_the_middle_of_a_command() -> None:
    with Queue("memory://forks-5") as queue:
        queue.enqueue("t", {})

        def use() -> None:
            queue.enqueue("t", {})
            with queue.take("t", timeout=30) as claim:
                assert claim
            queue.close()

        with HeldLocks(connection._fake_servers["memory://forks-5"].lock):
            assert in_child(use) == 0


def test_awaited_queues() -> None:
    queue = AsyncQueue("memory://forks-3")
    with HeldLocks(queue._mover_lock):
        assert in_child(queue._stop_mover) == 0


def test_threads_for_handlers() -> None:
    threads = HandlerThreads(1)
    threads.submit(lambda: None).result()

    def use() -> None:
        assert threads.submit(lambda: 5).result() == 5

    with HeldLocks(*locks_of(threads)):
        assert in_child(use) == 0


def test_calls_of_a_storage() -> None:
    calls = StorageCalls(30)
    calls.hanging = 64

    def use() -> None:
        assert calls.each(lambda item: item + 1, [1, 2]) == [2, 3]

    with HeldLocks(*locks_of(calls)):
        assert in_child(use) == 0


def test_readers_of_gauges() -> None:
    collector = RedisCollector("memory://forks-4", None)

    def use() -> None:
        assert {metric.name for metric in collector.collect()} >= {"streamdq_up"}

    with HeldLocks(*locks_of(collector)):
        assert in_child(use) == 0


def test_the_embedded_servers_of_a_process() -> None:
    with HeldLocks(server._registry_lock._lock):
        assert in_child(server._registry_lock.__enter__) == 0


def test_metrics() -> None:
    """They are a library's, which does not renew its locks."""
    counter, histogram = declared.LOOP_RESTARTS, declared.MOVE_BATCH
    counter.labels("forks", "a").inc()
    histogram.labels("forks").observe(1)
    registry: Any = REGISTRY
    locks = [recorded._early._lock, registry._lock, counter._lock, histogram._lock]
    locks += [counter.labels("forks", "a")._value._lock, histogram.labels("forks")._sum._lock]
    locks += [bucket._lock for bucket in histogram.labels("forks")._buckets]

    def use() -> None:
        counter.labels("forks", "a").inc()
        counter.labels("forks", "b").inc()
        histogram.labels("forks").observe_all([1, 2])
        recorded.redis_errors("forks", "a", 1)
        list(REGISTRY.collect())

    with HeldLocks(*locks):
        assert in_child(use) == 0


def test_properties_that_are_computed_once() -> None:
    """Before Python 3.12 they have a lock."""
    found = [value for value in vars(NamespaceKeys).values() if isinstance(value, cached_property)]
    locks = [each.lock for each in found if hasattr(each, "lock")]

    def use() -> None:
        fresh = NamespaceKeys("forks")
        for each in found:
            assert getattr(fresh, str(each.attrname)) is not None

    with HeldLocks(*locks):
        assert in_child(use) == 0


# -- none is left out


def made_locks(path: Path) -> list[str]:
    """Where the module makes a lock or the like of threads, outside of ``after_fork`` and what that calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in OF_THREADS
        for alias in node.names
    }
    found = []

    def makes(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        made = node.func
        if isinstance(made, ast.Attribute):
            return made.attr in MAKERS and isinstance(made.value, ast.Name) and made.value.id in OF_THREADS
        return isinstance(made, ast.Name) and made.id in MAKERS & names

    def look(node: ast.AST, where: tuple[str, ...], renewed: set[str]) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.ClassDef):
                look(part, (*where, part.name), renewed_by(part))
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                if part.name not in renewed:
                    look(part, (*where, part.name), renewed)
            else:
                if makes(part):
                    found.append(".".join(where))
                look(part, where, renewed)

    look(tree, (), set())
    return found


def renewed_by(made: ast.ClassDef) -> set[str]:
    """``after_fork``, and the methods that it calls."""
    after = [each for each in made.body if isinstance(each, ast.FunctionDef) and each.name == "after_fork"]
    called = [node.func for each in after for node in ast.walk(each) if isinstance(node, ast.Call)]
    return {"after_fork"} & {each.name for each in after} | {
        each.attr for each in called if isinstance(each, ast.Attribute)
    }


def test_every_lock_of_the_product_is_renewed_in_a_child() -> None:
    files = [path for folder in ("streamdq", "spark") for path in sorted((ROOT / folder).rglob("*.py"))]
    threaded = [path for path in files if _OF_THREADS.search(path.read_text(encoding="utf-8"))]
    found = {f"{path.relative_to(ROOT)}:{where}" for path in threaded for where in made_locks(path)}
    assert found == set(LIVES_IN_ONE_PROCESS)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import threading\nlock = threading.Lock()", [""]),
        ("from threading import RLock\nclass A:\n    def __init__(self):\n        self.a = RLock()", ["A.__init__"]),
        ("import threading\nclass A:\n    def after_fork(self):\n        self.a = threading.Event()", []),
        (
            """
import threading
class A:
    def after_fork(self): self._b()
    def _b(self): self.a = threading.Event()
    def c(self): threading.Lock()
""",
            ["A.c"],
        ),
        ("import asyncio\nlock = asyncio.Lock()", []),
    ],
)
def test_a_lock_that_is_not_is_found(tmp_path: Path, code: str, found: list[str]) -> None:
    path = tmp_path / "a.py"
    path.write_text(code, encoding="utf-8")
    assert made_locks(path) == found
