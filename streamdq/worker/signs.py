"""Signs of life. While a worker holds claims, its event loop tells Redis every second that it is alive; if it dies or
hangs, the mover takes the claims over within seconds. An idle worker has nothing to lose, and sends nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..config import SIGN_S
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..process.loop import Failures
from ..store.namespace import drop_sign
from ..store.scripts import Scripts

_CALL_S = 1.0  # a call that hangs must not cost the next sign
_AGAIN_S = 0.1  # after a failure: as soon as Redis is back, it should know who is alive


class Signs:
    """One consumer's signs. ``holds``: whether it holds claims.

    The first sign is given before the first claim: from then on the consumer is known to give signs. When it claims
    after it was idle, the next one comes within a second; the mover leaves claims alone that are younger than that.
    """

    def __init__(self, link: AsyncLink, session: Session, scripts: Scripts, holds: Callable[[], bool]) -> None:
        self._link = link
        self._session = session
        self._scripts = scripts
        self._holds = holds
        self._claimed = asyncio.Event()
        self._claimed_at = 0.0  # when it was set
        self._failures = Failures("signs", session.keys.namespace)
        self._on = session.settings.worker_timeout_s > 0 and not session.clock.manual

    async def begin(self) -> None:
        if self._on:
            await self._try()

    def claimed(self) -> None:
        """The consumer holds claims now."""
        if not self._claimed.is_set():
            self._claimed_at = time.monotonic()
            self._claimed.set()

    async def run(self) -> None:
        """A loop's body."""
        due = time.monotonic() + SIGN_S
        while self._on:
            if not self._holds():
                self._claimed.clear()
                await self._claimed.wait()
                due = self._claimed_at + SIGN_S  # a handler may have blocked the loop since
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            given = not self._holds() or await self._try()
            due = time.monotonic() + (SIGN_S if given else _AGAIN_S)

    async def _try(self) -> bool:
        try:
            await self._give()
        except Exception as error:
            self._failures.failed("signs", error)
            return False
        self._failures.worked("signs")
        return True

    async def _give(self) -> None:
        await arun(self._link, self._scripts.sign(self._session.consumer, _CALL_S))

    async def end(self) -> None:
        """The consumer leaves."""
        if self._on:
            await arun(self._link, drop_sign(self._session, self._session.consumer))
