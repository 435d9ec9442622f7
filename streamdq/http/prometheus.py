"""Asks a Prometheus for what ran lately, if the server is configured with one. Its metrics are exact for any load; the
history in Redis reaches back only so many rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from pydantic_core import from_json

from ..process.logs import log
from ..process.loop import cancel_and_wait
from ..times.clock import wall_s
from .activity import Activity, Row

_TIMEOUT_S = 5.0
_WAIT_S = 0.1
_FRESH_S = 10.0
_OLDEST_S = 120.0
_MOST_BYTES = 4 * 1024 * 1024
_PART = 65_536
_MOST_KEPT = 500
_MOST = 1e15  # beyond that a figure is an error, and no chart has room for it

_ATTEMPTS = 'sum(increase(streamdq_job_attempts_total{{{labels},outcome=~"{outcome}"}}[{step}s]))'
_TAKEN_OVER = "sum(increase(streamdq_jobs_reclaimed_total{{{labels}}}[{step}s]))"
_LATE = (
    "histogram_quantile({quantile}, sum by (le) (increase(streamdq_job_lateness_seconds_bucket{{{labels}}}[{step}s])))"
)

Asked = tuple[str, str, int, int]
"""Topic and group, '' for all of them; the length of a step in seconds, and how many there are."""


class Prometheus:
    """The client. Answers are kept for seconds, and asked for in the background."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url.rstrip("/")
        self._namespace = namespace
        self._found: dict[Asked, tuple[float, Activity | None]] = {}
        self._asking: dict[Asked, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self.failed = ""

    async def of(self, topic: str, group: str, step_ms: int, steps: int) -> Activity | None:
        """The latest answer; None: there is none yet, or Prometheus has no such series."""
        asked = topic, group, step_ms // 1000, steps
        known = self._found.get(asked)
        if (known is None or time.monotonic() - known[0] > _FRESH_S) and asked not in self._asking:
            task = self._asking[asked] = asyncio.create_task(self._ask(asked))
            task.add_done_callback(lambda _: self._asking.pop(asked, None))
        if known is None and asked in self._asking:
            await asyncio.wait({self._asking[asked]}, timeout=_WAIT_S)
            known = self._found.get(asked)
        return known[1] if known and time.monotonic() - known[0] < _OLDEST_S else None

    async def _ask(self, asked: Asked) -> None:
        at = time.monotonic()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await self._activity(*asked)
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError, OverflowError) as error:
            if not self.failed:
                log.warning("prometheus does not answer", error=f"{type(error).__name__}: {error}"[:300])
            self.failed = f"{type(error).__name__}"
            return
        self.failed = ""
        while len(self._found) >= _MOST_KEPT:
            self._found.pop(next(iter(self._found)))
        self._found.pop(asked, None)
        self._found[asked] = (at, found)

    async def _activity(self, topic: str, group: str, step_s: int, steps: int) -> Activity | None:
        labels = ",".join(
            f"{name}={_quoted(value)}"
            for name, value in (("namespace", self._namespace), ("topic", topic), ("group", group))
            if value
        )
        end_s = int(wall_s()) // step_s * step_s + step_s
        start_s = end_s - (steps - 1) * step_s
        given = {"labels": labels, "step": step_s}
        queries = (
            _ATTEMPTS.format(outcome="done", **given), _ATTEMPTS.format(outcome="retry|dead", **given),
            _TAKEN_OVER.format(**given), _LATE.format(quantile=0.5, **given), _LATE.format(quantile=0.99, **given),
        )  # fmt: skip
        asking = [asyncio.create_task(self._range(query, start_s, end_s, step_s)) for query in queries]
        try:
            found = await asyncio.gather(*asking)
        finally:
            await cancel_and_wait(asking)  # if one has failed, the others may hang
        if not any(found):
            return None
        done, failed, taken_over, p50, p99 = found
        ends = range(start_s, end_s + 1, step_s)
        rows = [
            Row(
                (at - step_s) * 1000, done.get(at), failed.get(at, 0.0) + taken_over.get(at, 0.0),
                _ms(p50.get(at)), _ms(p99.get(at)),
            )
            for at in ends
        ]  # fmt: skip
        return Activity(step_s * 1000, rows, "prometheus")

    async def _range(self, query: str, start_s: int, end_s: int, step_s: int) -> Mapping[int, float]:
        """The values of the query's only series, by time."""
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        params: dict[str, Any] = {"query": query, "start": start_s, "end": end_s, "step": step_s}
        async with self._session.get(f"{self.url}/api/v1/query_range", params=params) as answer:
            answer.raise_for_status()
            text = bytearray()
            async for part in answer.content.iter_chunked(_PART):
                text += part
                if len(text) > _MOST_BYTES:
                    raise ValueError("the answer is too large")
        series = from_json(bytes(text))["data"]["result"]
        values = series[0]["values"] if series else []
        return {int(at): value for at, text in values if 0 <= (value := float(text)) <= _MOST}

    async def close(self) -> None:
        await cancel_and_wait(list(self._asking.values()))
        if self._session is not None:
            await self._session.close()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
