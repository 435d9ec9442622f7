"""On a slot that is MIGRATING, a key that becomes empty belongs to the other node: a script that uses it again
would end there, half way. No script does: most don't begin while their slot moves, and the others use no key again that
they may have emptied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from streamdq.config import topic_patch
from streamdq.errors import NewerFormat
from streamdq.link.session import Request
from streamdq.store.assembly import library, load_script, script_names
from tests.conftest import EACH_BINARY
from tests.lua.moving import MovingSlot
from tests.lua.shard import Shard
from tests.lua.test_stored_format import CALLS, in_newer_format
from tests.servers import Binary, Cluster
from tests.turns import others_later

SCRIPTS = script_names()
WAITING = [name for name in SCRIPTS if load_script(name).waits]
EMPTYING = {"DEL", "HDEL", "SPOP", "UNLINK", "ZPOPMIN", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE"}


@pytest.fixture(params=EACH_BINARY)
def shard(request: pytest.FixtureRequest, clusters: Callable[[Binary], Cluster]) -> Iterator[Shard]:
    cluster = clusters(request.param)
    cluster.flush()
    opened = Shard(cluster.url)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "name",
    others_later([name for name in WAITING if name in CALLS], "claim", "enqueue", "finish", "move", "reclaim", "retry"),
)
def test_a_script_that_waits_does_not_begin(shard: Shard, name: str) -> None:
    """Shard.run fails if it does."""
    waited: list[str] = []
    assert shard.moving is not None
    shard.moving.refuses = waited.append
    in_newer_format(shard)
    with pytest.raises(NewerFormat):  # afterwards; none of these calls has to make sense
        shard.run(CALLS[name](shard))
    assert set(waited) == {name}


def test_all_scripts_that_do_not_wait_are_called_here() -> None:
    assert set(WAITING) - CALLS.keys() == set()


# What was lost or stuck when Redis ended these half way.


@pytest.mark.parametrize("order", [False, "pass"])
def test_a_job_of_a_key_fails(shard: Shard, order: bool | str) -> None:
    shard.topic(key_concurrency=1, key_order=order)
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.retry(shard.take(), delay_ms=0, failure="text")
    for expected in (b"b", b"a"):
        shard.move()
        row = shard.take()
        assert row.id == expected
        shard.finish(row)
    assert shard.empty()


def test_the_last_of_a_key_ends(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue_unique("a", "b", rule="60000|||", key="m")
    for id in (b"a", b"b"):
        shard.move()
        row = shard.take()
        assert row.id == id
        shard.finish(row)
    assert shard.empty()


def test_the_only_job_is_replaced(shard: Shard) -> None:
    shard.enqueue("j", delay="1h")
    shard.call("replace", 1, shard.jobs("j", delay="2h"))
    assert shard.state("j") == "delayed"


def test_the_only_job_is_postponed(shard: Shard) -> None:
    shard.enqueue("j", delay="1h")
    shard.call("reschedule", "j", "+5")
    assert shard.state("j") == "delayed"


def test_the_only_job_comes_due(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.clock.advance("1s")
    shard.move()
    shard.finish(*shard.claim().rows)
    assert shard.empty()


# Scripts that do not wait.


def _taken(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="1000|||")
    shard.move()
    shard.finish(shard.take())
    shard.enqueue("another", delay="1h")
    shard.clock.advance("2s")


def _deleting(shard: Shard) -> None:
    patch = topic_patch({"deleting": "force"}, {})
    shard.topics.known["t"] = shard.run(shard.scripts.register_topic("t", patch))


def _two_processes(shard: Shard) -> None:
    for name in ("me", "standby"):
        shard.run(shard.scripts.lease(name, 60_000, 0.5))


EMPTIED: dict[str, tuple[Callable[[Shard], object], Callable[[Shard], object]]] = {
    "drop_lease": (
        lambda shard: shard.run(shard.scripts.lease("me", 60_000, 0.5)),
        lambda shard: shard.scripts.drop_lease("me"),
    ),
    "lease": (_two_processes, lambda shard: shard.scripts.lease("standby", 60_000, 0.5)),
    "list_ids": (_taken, lambda shard: shard.scripts.list_ids(shard.k, 1, "taken", b"0", 10)),
    "read_heartbeats": (
        lambda shard: shard.run(shard.scripts.heartbeat("me", 5.0)),
        lambda shard: shard.scripts.read_heartbeats(["me"], 5.0),
    ),
    "register_topic": (
        lambda _: None,
        lambda shard: shard.scripts.register_topic("t", topic_patch({"ttr_ms": 5}, {})),
    ),
    "heartbeat": (
        lambda shard: shard.run(shard.scripts.heartbeat("me", 5.0)),
        lambda shard: shard.scripts.heartbeat("me", 5.0),
    ),
    "unregister_topic": (
        _deleting,
        lambda shard: shard.scripts.unregister_topic("t", shard.settings.version),
    ),
}
"""Those that remove something, each with what makes it remove the last there is."""


def test_all_of_them_that_remove_something_are_called() -> None:
    removing = {
        name
        for name in SCRIPTS
        if name not in WAITING
        and load_script(name).writes
        and EMPTYING & {*re.findall(r"redis\.p?call\('(\w+)'", load_script(name).source)}
    }
    assert removing - {"rights"} == EMPTIED.keys(), "the key of `rights` does not exist"


@pytest.mark.parametrize("name", EMPTIED)
def test_a_script_that_does_not_wait_uses_no_key_that_it_has_emptied(shard: Shard, name: str) -> None:
    prepare, call = EMPTIED[name]
    prepare(shard)
    step = next(call(shard))  # type: ignore[call-overload]
    assert isinstance(step, Request)
    (command,) = step.commands[:1]
    slot = MovingSlot(shard.url, command.key)
    if command.args[0] == "EVALSHA":
        slot.source.script_load(load_script(name).source)
    else:
        with suppress(redis.ResponseError):  # it is there already
            slot.source.function_load(library().source)
    keys = slot.source.dbsize()
    with slot.migrating():
        reply = slot.ask(command)
    assert not isinstance(reply, redis.ResponseError), reply
    has_emptied = slot.source.dbsize() < keys
    assert has_emptied == (name in ("drop_lease", "list_ids", "unregister_topic"))
    slot.close()
