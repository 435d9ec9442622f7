"""Changes of topology that are cut off, and what must hold after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from streamdq import Queue
from streamdq.link.session import Op, Request, run
from streamdq.operations.topics import configure
from tests.redis.harness import Seen, Space


def sent(queue: Queue, request: Request) -> Op[list[Any]]:
    """The replies to a whole call."""
    route = queue._store.session.route
    return (yield request) if route is None else (yield from route(request))


def whole(queue: Queue, op: Op[Any]) -> Op[Any]:
    """The operation, but it yields whole calls: those that a Cluster's nodes share are not split up."""
    reply: Any = None
    while True:
        try:
            with patch.object(queue._store.session, "route", None):
                step = op.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = yield step


def steps(queue: Queue, op: Op[Any]) -> Iterator[None]:
    """Carries an operation out; yields before each of its calls. Left alone, it is a process that was killed there."""
    calls = whole(queue, op)
    step = next(calls)
    try:
        while True:
            yield
            assert isinstance(step, Request)
            step = calls.send(run(queue._link, sent(queue, step)))
    except StopIteration:
        return
    finally:
        op.close()


def configuring(queue: Queue, **changes: Any) -> Iterator[None]:
    return steps(queue, configure.configure(queue._store, "t", **changes))


def each_cut(make: Callable[[], Iterator[None]]) -> Iterator[int]:
    """Carries it out anew each time, one call further; ends after it was carried out whole."""
    for calls in range(1, 200):
        left = make()
        with patch.multiple(
            "streamdq.store.topics.configure_shards", _SHARDS_AT_ONCE=1, _LEAVING_AT_ONCE=1
        ):  # between any two of them
            done = sum(1 for _, _ in zip(range(calls), left, strict=False))
        yield calls
        if done < calls:
            return
        left.close()  # type: ignore[attr-defined]
    raise AssertionError("it never ends")


async def all_run(space: Space, ids: set[str], group: str = "default") -> None:
    """A worker runs exactly these jobs, and nothing is left."""
    worker, seen = space.worker(group), Seen()

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)

    await space.burst(worker)
    assert sorted(seen.all) == sorted(ids)
    audit = space.audit()
    assert (audit.left, audit.balanced) == (0, True)
