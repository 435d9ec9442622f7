"""What a worker's process does not wait for."""

from __future__ import annotations

import asyncio

import pytest

from streamdq.process import leaving
from tests.waiting import HANG_S


def test_ctrl_c_pressed_again_ends_the_wait_for_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cancels the main task, as asyncio.run does: if that ended so, the loop would wait for the other for ever."""
    monkeypatch.setattr(leaving, "END_S", 2 * HANG_S)

    async def main() -> list[str]:
        ends, this = asyncio.Event(), asyncio.current_task()
        assert this is not None

        async def ignores_cancellation() -> None:
            try:
                await ends.wait()
            except asyncio.CancelledError:
                this.cancel()
                await ends.wait()

        task = asyncio.create_task(ignores_cancellation())
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(HANG_S):
                return await leaving.left_over()
        finally:
            ends.set()
            await task

    (left,) = asyncio.run(main())
    assert "ignores that it was cancelled" in left
