"""What Redis needs for one call of a script: as a function of the library, and by EVALSHA of the same code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from math import inf

from streamdq import NewJob, Queue
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import run
from streamdq.operations.attempts.claimed import held_in
from streamdq.operations.attempts.ends import AttemptResult, End, send_ends
from streamdq.store.redis_store import RedisStore

from .figures import Figure
from .harness import GROUP, NAMESPACE, SHARD, TOPIC, Bench, body, hours, median, spread
from .server import RedisServer

_ROUNDS, _JOBS = 20, 500
_TTR_MS = 600_000
STEPS = ("enqueue", "claim", "finish")
WAYS = ("fcall", "evalsha")


class _Caller:
    """A client that calls scripts in one way."""

    def __init__(self, server: RedisServer, way: str, opened: ExitStack) -> None:
        self._server, self._way = server, way
        self._queue = opened.enter_context(Queue(server.url, NAMESPACE))
        self._link, self._session = open_session(server.url, NAMESPACE, None, None, Link)
        opened.callback(self._link.close)
        self._store = RedisStore(self._session)
        if way == "evalsha":
            for session in (self._session, self._queue._store.session):
                session.by_evalsha[""] = inf

    def steps(self, count: int) -> dict[str, float]:
        """Redis's µs for a call of each script, with one job in each."""
        found = {
            "enqueue": self._us(lambda: [self._queue.enqueue(TOPIC, body(i), delay=hours(i)) for i in range(count)])
        }
        self._queue.enqueue_many(TOPIC, [NewJob(body(i)) for i in range(count)])
        found["claim"] = self._us(lambda: self._claim(count))
        found["finish"] = self._us(self._finish)
        return found

    def _claim(self, count: int) -> None:
        scripts, consumer = self._store.scripts, self._session.consumer
        rows = [run(self._link, scripts.claim(SHARD, GROUP, consumer, 1, _TTR_MS)) for _ in range(count)]
        self._held = [held for row in rows for held in held_in(SHARD, GROUP, row, 0.0)]

    def _finish(self) -> None:
        scripts, consumer = self._store.scripts, self._session.consumer
        for held in self._held:
            run(self._link, send_ends(scripts, SHARD, GROUP, consumer, [End(held, AttemptResult.DONE)]))

    def _us(self, calls: Callable[[], object]) -> float:
        self._server.client.config_resetstat()
        calls()
        made, us = self._server.script_calls()
        return us / made


def functions(bench: Bench) -> list[Figure]:
    """The two ways alternate on one server. Without functions, there is one way."""
    count, us = bench.jobs(_JOBS, least=20), defaultdict[tuple[str, str], list[float]](list)
    with bench.server() as server, ExitStack() as opened:
        ways = WAYS if server.has_functions else WAYS[1:]
        callers = {way: _Caller(server, way, opened) for way in ways}
        for _ in range(bench.rounds(_ROUNDS)):
            for way, caller in callers.items():
                for step, found in caller.steps(count).items():
                    us[way, step].append(found)
    return [
        Figure(
            "functions", f"{step}, one job, by {way}", median(us[way, step]), "µs",
            median(us["evalsha", step]), "by EVALSHA", raw={way: spread(us[way, step])},
        )
        for step in STEPS
        for way in ways
    ]  # fmt: skip
