"""The process of a handler, and its pipe to the worker."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from streamdq.worker import child as child_module
from streamdq.worker.child import Setup, _Child
from tests.waiting import HANG_S

SETUP = Setup(pickle.dumps([]), "nowhere", ("test", "default", frozenset()), None, 1000)


def test_what_a_job_reports_after_its_end_is_not_taken_for_a_report_of_the_next_one() -> None:
    worker, pipe = multiprocessing.Pipe()
    child, held = _Child(pipe, SETUP), SimpleNamespace(ended=False)
    job: Any = held
    child._held = [job]
    child._report(job, "half")
    assert worker.recv() == ("progress", 0, "half")
    held.ended = True  # between the check in the user's thread and this
    child._report(job, "late")
    assert not worker.poll()
    worker.close()
    pipe.close()


class TooLarge:
    def recv_bytes(self) -> bytes:
        raise MemoryError


def test_a_process_that_can_not_read_a_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()
    monkeypatch.setattr(child_module, "END_S", 0)
    monkeypatch.setattr(os, "_exit", lambda _code: ended.set())
    pipe: Any = TooLarge()
    _Child(pipe, SETUP).run()
    assert ended.wait(HANG_S)
