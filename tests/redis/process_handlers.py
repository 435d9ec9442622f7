"""Handlers that run in processes of a worker, which import this module."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from streamdq import Bury, Retry, RunningJob


class Order(BaseModel):
    number: int
    name: str = ""


class Unpicklable(Exception):
    def __init__(self, number: int, lock: Any) -> None:
        super().__init__(f"order {number}")
        self.lock = lock


@dataclass
class Receipt:
    """To load it in the worker would end that."""

    number: int

    def __reduce__(self) -> Any:
        return sys.exit, (5,)


def add(order: Order, job: RunningJob) -> dict[str, Any]:
    job.touch("1h")
    job.progress(0.5, f"order {order.number}")
    job.queue.enqueue("follow-up", {"of": job.id}, id=f"after-{job.id}", delay="1h")
    return {
        "pid": os.getpid(), "number": order.number + 1, "attempt": job.attempt, "version": job.version,
        "has_time": job.time_left_s() > 1800, "body": job.body,
    }  # fmt: skip


def _raise(error: Exception, cause: Exception | None = None) -> None:
    raise error from cause


def fail(how: str) -> Any:
    return _WAYS[how]()


def _fine() -> str:
    return "fine"


_WAYS: dict[str, Callable[[], Any]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: os._exit(3),
    "crashes": lambda: ctypes.string_at(0),
    "raises": lambda: _raise(ValueError("no such order"), KeyError("order")),
    "unpicklable": lambda: _raise(Unpicklable(7, threading.Lock())),
    "buries": lambda: _raise(Bury("not ours")),
    "retries": lambda: _raise(Retry("1h", "later")),
    "too large": lambda: len(bytearray(10**12)),
    "lazy": lambda: (n for n in range(3)),
    "no result": threading.Lock,
    "large result": lambda: "x" * 5_000_000,
    "receipt": lambda: Receipt(7),
    "fine": _fine,
}


def wait(fifo: str) -> int:
    """Until somebody has written there; its own process is known before."""
    Path(f"{fifo}.pid").write_text(str(os.getpid()))
    Path(fifo).read_text()
    return os.getpid()


def leave_a_child(fifo: str, job: RunningJob) -> int:
    """Waits for a second, as does a child of its own, which has all its files open. Without one, returns at once."""
    if fifo == "none":
        return os.getpid()
    if os.fork() == 0:
        Path(f"{fifo}.child").read_text()
        os._exit(0)
    job.touch("1s")
    return wait(fifo)


def wait_for_abort(fifo: str, job: RunningJob) -> None:
    wait(fifo)
    while not job.aborted:
        threading.Event().wait(0.01)
    Path(f"{fifo}.seen").touch()


def count(numbers: list[int], jobs: list[RunningJob]) -> list[list[Any]]:
    return [[number, job.id, len(numbers)] for number, job in zip(numbers, jobs, strict=True)]


def too_few(numbers: list[int]) -> list[int]:
    return numbers[1:]


def leave_a_thread(fifo: str) -> None:
    """A thread that Python waits for when it exits."""
    threading.Thread(target=threading.Event().wait).start()
    Path(f"{fifo}.pid").write_text(str(os.getpid()))


def fork_in_worker(fifo: str) -> None:
    """A ``def`` handler of the worker itself, whose child goes on."""
    if os.fork() == 0:
        wait(fifo)
        os._exit(0)
