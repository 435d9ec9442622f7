"""The events of topics that callers follow: each page is read once for all who have come as far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from pydantic_core import to_json

from ..link.session import Op
from ..operations.history.events import following
from ..operations.json_out import event_json
from ..process.loop import cancel_and_wait
from ..store.history.rows import HistoryRow
from ..store.redis_store import RedisStore

LOOK_S = 2.0
_KEPT_S = 1.0
_KEPT = 8  # pages that some may not have come to yet; who is slower reads them again


class Followed(NamedTuple):
    """An event as it is sent. ``position``: after it."""

    position: str
    row: HistoryRow
    text: bytes


class Pages:
    """The pages that are waited for, and a few of those that were read."""

    def __init__(self, store: Callable[[], Awaitable[RedisStore]], do: Callable[[Op[Any]], Awaitable[Any]]) -> None:
        self._store, self._do = store, do
        self._pages: dict[tuple[str, str], asyncio.Task[list[Followed]]] = {}

    async def after(self, topic: str, position: str, wait_s: float) -> list[Followed]:
        """The events that come next, waited for; [] if there are none for so long, or for ``LOOK_S``."""
        place = topic, position
        page = self._pages.get(place)
        if page is None:
            page = self._pages[place] = asyncio.create_task(self.read(topic, position, LOOK_S))
            page.add_done_callback(partial(self._keep, place))
        await asyncio.wait({page}, timeout=wait_s)
        return page.result() if page.done() else []

    async def read(self, topic: str, position: str, wait_s: float) -> list[Followed]:
        """The same, read for one caller."""
        found = await self._do(following(await self._store(), topic, position).page(wait_s))
        return [
            Followed(after, event.row, to_json({"id": event.row.id, **event_json(event)})) for after, event in found
        ]

    def _keep(self, place: tuple[str, str], page: asyncio.Task[list[Followed]]) -> None:
        """A while: then the topic may be another one of that name, which has other events at this place."""
        if page.cancelled() or page.exception() or not page.result():
            self._pages.pop(place, None)
        else:
            asyncio.get_running_loop().call_later(_KEPT_S, self._pages.pop, place, None)
        read = [place for place, page in self._pages.items() if page.done()]
        for place in read[:-_KEPT]:
            del self._pages[place]

    async def close(self) -> None:
        await cancel_and_wait(self._pages.values())
