"""What tests of other projects run on: clocks that stand still, and other times than ours."""

from __future__ import annotations

import asyncio
import time

import pytest

from streamdq import InvalidInput
from streamdq.testing import drain, memory


class _Stands(asyncio.SelectorEventLoop):
    """A loop whose clock stands still, as freezegun makes it."""

    def time(self) -> float:
        return 946_684_800.0


def test_a_clock_that_stands_still_is_told_of() -> None:
    """Its time-outs would never come."""
    server = memory()
    with asyncio.Runner(loop_factory=_Stands) as runner, pytest.raises(InvalidInput, match="real_asyncio=True"):
        runner.run(drain(server.worker(), server.clock))


def test_the_year_2000(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments then have a digit less."""
    monkeypatch.setattr(time, "time", lambda: 946_684_800.0)
    server = memory()
    worker = server.worker()
    worker.handler("t")(print)
    with server.queue() as queue, caplog.at_level("WARNING", "streamdq"):
        queue.enqueue("t", {}, delay=5)
        asyncio.run(drain(worker, server.clock, "1m"))
        assert queue.stats("t").topics["t"].groups["default"].done == 1
    assert caplog.messages == []
