"""`streamdq enqueue` to a topic whose name is probably a slip."""

from __future__ import annotations

import io
import sys

import pytest
import typer

from streamdq import Queue
from tests.cli.conftest import Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_asks_on_a_terminal(run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.enqueue("order.close", {"n": 1})
    monkeypatch.setattr(sys, "stdin", Terminal())
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr(typer, "confirm", confirm)
    assert run("enqueue", "ordr.close", "{}").code == 130
    assert set(queue.stats().topics) == {"order.close"}
    assert run("enqueue", "ordr.close", "{}").code == 0
    assert run("enqueue", "ordr.close", "{}").code == 0
    assert run("enqueue", "order.remind", "{}").code == 0
    assert asked == ["There is no topic ordr.close: did you mean order.close? Make ordr.close anyway?"] * 2
    assert queue.stats("ordr.close").delayed + queue.stats("ordr.close").ready == 2


def test_elsewhere_it_warns(run: Run, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue("order.close", {"n": 1})
    done = run("enqueue", "ordr.close", "{}")
    assert done.code == 0
    assert [record for record in caplog.records if "did_you_mean" in record.getMessage()]
