"""audit_entries: where some jobs should be, and what their stream has at that time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamdq.link.session import Op
from streamdq.operations.checks import audit
from streamdq.operations.topics import configure
from tests.lua.shard import Shard


def asked(
    shard: Shard, stream: str, *ids: str, after: str = "0-0", limit: int = 10
) -> tuple[list[tuple[str, str]], Sequence[bytes]]:
    """Which job should be in which stream; and the values that came into this one."""
    wanted, came = shard.run(shard.scripts.audit_entries(shard.k, stream, after, limit, ids))
    return sorted((id, group) for id, group, _ in wanted), [value for _, value in came]


def test_only_of_these_jobs_and_of_what_came_since(shard: Shard) -> None:
    shard.enqueue("a", "b")
    shard.enqueue("delayed", delay="1s")
    entries = shard.redis("XRANGE", shard.k.ready, "-", "+")
    wanted, values = asked(shard, shard.k.ready, "a", "delayed", "none", after=entries[0][0].decode())
    assert wanted == [("a", "")]
    assert values == [entries[1][1][1]]
    assert len(asked(shard, shard.k.ready, limit=1)[1]) == 1


def test_a_job_that_left_its_stream_twice_is_no_orphan(shard: Shard) -> None:
    """Whenever the audit looks at the stream, the job has just been handed back; and whenever it looks at the job, that
    is ready again, by the same value.
    """
    shard.enqueue("j")
    shard.retry(shard.take())
    shard.move()
    own, looks = shard.k.ready_of("default"), 0

    def reported(request: Any) -> Any:
        nonlocal looks
        if ("XRANGE", own, "-") not in [command.args[:3] for command in request.commands]:
            return shard.run(once(request))
        looks += 1
        row = shard.take()
        shard.run(configure.pause(shard.store, "t"))
        shard.release(row)
        reply = shard.run(once(request))
        shard.run(configure.resume(shard.store, "t"))
        shard.move()
        return reply

    before = asked(shard, own)[1]
    found = followed(audit.audit(shard.store), reported)
    assert looks == 2
    assert asked(shard, own)[1] == before
    assert found.orphans == []


def once(request: Any) -> Op[Any]:
    return (yield request)


def followed(op: Op[Any], reported: Callable[[Any], Any]) -> Any:
    """The operation's result; ``told`` answers its requests."""
    try:
        request = next(op)
        while True:
            request = op.send(reported(request))
    except StopIteration as stop:
        return stop.value
