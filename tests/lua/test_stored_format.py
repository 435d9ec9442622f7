"""Data that a newer version has written: every script refuses them, and writes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamdq.config import topic_patch
from streamdq.errors import FORMAT, NewerFormat
from streamdq.store.assembly import load_script, lua_directory
from streamdq.store.find.wanted import Wanted
from streamdq.store.jobs.links import News
from streamdq.store.scripts.flows import Run
from tests.cases import each
from tests.lua.shard import Shard
from tests.lua.test_contract import calls_in, code_of
from tests.turns import others_later

WITHOUT_DATA = {
    "lease",
    "drop_lease",
    "rotate_secret",
    "heartbeat",
    "read_heartbeats",
    "rights",
}  # nothing that a topic keeps
CLAIM = ["main", "", "id"]
CALLS: dict[str, Callable[[Shard], Any]] = {
    "abort": lambda shard: shard.scripts.abort(shard.k, shard.settings, "ready"),
    "add_gate": lambda shard: shard.scripts.add_gate(Run(shard.k, "f", "life"), 0, 1000, ["t\x1f0\x1f0\x1fnonce\x1fd"]),
    "archive": lambda shard: shard.scripts.archive(shard.k, "default", ["dead", "receipt", 1, "0", 1]),
    "attach": lambda shard: shard.scripts.attach(shard.k, None, ["ready", "", "t\x1f0\x1f0\x1fnonce\x1fd"]),
    "audit_bucket": lambda shard: shard.scripts.audit_bucket(shard.k, b"0", 10),
    "audit_keys": lambda shard: shard.scripts.audit_keys(shard.k, b"", 10),
    "audit_entries": lambda shard: shard.scripts.audit_entries(shard.k, shard.k.ready, "0-0", 10, ["dead"]),
    "audit_jobs": lambda shard: shard.scripts.audit_jobs(shard.k, b"0", 10),
    "begin_flow": lambda shard: shard.scripts.begin_flow(Run(shard.k, "f", "life"), shard.settings, 1000, 0),
    "bury": lambda shard: shard.scripts.bury(shard.k, "default", "1", "me", [*CLAIM, "row", "refused", "why", ""]),
    "cancel": lambda shard: shard.scripts.cancel(shard.k, shard.settings, "ready"),
    "claim": lambda shard: shard.scripts.claim(shard.k, "default", "me", 10, 60_000),
    "claim_ranked": lambda shard: shard.scripts.claim(shard.k, "default", "me", 10, 60_000, prioritized=True),
    "configure_shard": lambda shard: shard.scripts.configure_shard(shard.k, shard.settings),
    "dead_letters": lambda shard: shard.scripts.dead_letters(shard.k, "default", 9**15, 0, 10, 1000),
    "deliver": lambda shard: shard.scripts.deliver(shard.k, [News("d", "nonce", 0, 1, "done")]),
    "delivered": lambda shard: shard.scripts.delivered(shard.k, ["ready", 0, 1, ""]),
    "drop_shard": lambda shard: shard.scripts.drop_shard(shard.k, shard.settings),
    "endings": lambda shard: shard.scripts.endings(shard.k, 10),
    "enqueue": lambda shard: shard.scripts.enqueue(shard.k, 1, shard.jobs("new")),
    "enqueue_after": lambda shard: shard.scripts.enqueue_after(
        shard.k, 1, "keep", shard.jobs("new")[::2], ["1|0|0|0|block|0", "t\x1f0\x1flife\x1fready", "."]
    ),
    "enqueue_unique": lambda shard: shard.scripts.enqueue_unique(shard.k, 1, "keep", [*shard.jobs("new"), "|||"]),
    "erase_job": lambda shard: shard.scripts.erase_job(shard.k, shard.settings, [("ready", "")]),
    "erase_rows": lambda shard: shard.scripts.erase_rows(shard.k, ["1-1"]),
    "fire": lambda shard: shard.scripts.fire(shard.k, 1, 10, late_ms=30_000, again_ms=1_000, ahead_ms=0),
    "find_in_order": lambda shard: shard.scripts.find_in_order(shard.k, shard.k.bucket, (0, b""), 1, 1, Wanted()),
    "find_jobs": lambda shard: shard.scripts.find_jobs(shard.k, b"0", 10, Wanted()),
    "finish": lambda shard: shard.scripts.finish(shard.k, "default", "1", "me", [*CLAIM, "row"]),
    "forget_ended": lambda shard: shard.scripts.forget_ended(shard.k, ["gone"], only_count=False),
    "forget_key": lambda shard: shard.scripts.forget_key(shard.k, "k", only_count=False),
    "get": lambda shard: shard.scripts.get(shard.k, "ready"),
    "kick": lambda shard: shard.scripts.kick(shard.k, "default", 10, []),
    "leave_group": lambda shard: shard.scripts.leave_group(shard.k, "default", 10),
    "link_children": lambda shard: shard.scripts.link_children(shard.k, "p", "life", []),
    "list_ids": lambda shard: shard.scripts.list_ids(shard.k, 1, "jobs", b"0", 10),
    "look_after": lambda shard: shard.scripts.look_after(shard.k, 10),
    "move": lambda shard: shard.scripts.move(shard.k, ("default",), 10),
    "move_ranked": lambda shard: shard.scripts.move(shard.k, ("default",), 10, prioritized=True),
    "apply_key_limit": lambda shard: shard.scripts.apply_key_limit(shard.k, 10),
    "pause_key": lambda shard: shard.scripts.pause_key(shard.k, shard.settings, "k", True),
    "permit": lambda shard: shard.scripts.permit(shard.k, 10),
    "purge": lambda shard: shard.scripts.purge(shard.k, "default", 10, []),
    "reclaim": lambda shard: shard.scripts.reclaim(shard.k, "default", shard.settings, 10, (b"0-0", b"0-0"), 4_000),
    "register_dump": lambda shard: shard.scripts.register_dump(shard.k, "d1", "0-0"),
    "register_topic": lambda shard: shard.scripts.register_topic("t", topic_patch({"ttr_ms": 5}, {})),
    "relay": lambda shard: shard.scripts.relay(
        shard.k, shard.settings, "outbox", 1, [*shard.jobs("new"), "receipt", 0]
    ),
    "relayed": lambda shard: shard.scripts.relayed(shard.k, 1, ["ready", "receipt"]),
    "release": lambda shard: shard.scripts.release(shard.k, "default", "1", "me", [*CLAIM, "row"]),
    "remove_consumer": lambda shard: shard.scripts.remove_consumer(shard.k, "default", "me", 10),
    "replace": lambda shard: shard.scripts.replace(shard.k, 1, shard.jobs("ready")),
    "report": lambda shard: shard.scripts.report(shard.k, "default", "1", "me", [*CLAIM, "0.5 half"]),
    "reschedule": lambda shard: shard.scripts.reschedule(shard.k, shard.settings, "ready", "+5"),
    "restore": lambda shard: shard.scripts.restore(shard.k, "default", 1, ["new", "receipt", 1, 1, "rest"]),
    "retry": lambda shard: shard.scripts.retry(shard.k, "default", "1", "me", [*CLAIM, "row", 0, 1, "Oops", ""]),
    "retract": lambda shard: shard.scripts.retract(shard.k, "s"),
    "schedule": lambda shard: shard.scripts.schedule(shard.k, 1, "s", 0, 5, 0, b"record"),
    "decide_flow": lambda shard: shard.scripts.decide_flow(Run(shard.k, "f", "life"), "open"),
    "stats": lambda shard: shard.scripts.stats(shard.k, ["default"]),
    "record_flows": lambda shard: shard.scripts.record_flows(shard.k, ("", "1-1"), ["row"]),
    "sweep_flows": lambda shard: shard.scripts.sweep_flows(shard.k, 10),
    "take_over": lambda shard: shard.scripts.take_over(shard.k, "default", shard.settings, "me", 3_000, 10, 5.0),
    "touch": lambda shard: shard.scripts.touch(shard.k, "default", "1", "me", 60_000, [*CLAIM, 60_000]),
    "trim_dead": lambda shard: shard.scripts.trim_dead(shard.k, "default", 10),
    "trim_history": lambda shard: shard.scripts.trim_history(shard.k),
    "unregister_topic": lambda shard: shard.scripts.unregister_topic("t", shard.settings.version),
    "unschedule": lambda shard: shard.scripts.unschedule(shard.k, "s"),
}
SCRIPTS = {path.stem: path for path in sorted(lua_directory().glob("*.lua"))}


def test_every_script_is_called_here() -> None:
    assert CALLS.keys() | WITHOUT_DATA == SCRIPTS.keys()
    assert not CALLS.keys() & WITHOUT_DATA


def test_lua_and_python_know_the_same_format() -> None:
    source = (lua_directory() / "lib" / "stored_format.lua").read_text()
    assert f"local FORMAT = {FORMAT}\n" in source
    assert all(("NEWERFORMAT" in load_script(name).source) == (name in CALLS) for name in SCRIPTS)


@each("path", [SCRIPTS[name] for name in CALLS])
def test_it_looks_at_the_format_before_it_writes(path: Path) -> None:
    """Nothing but reads, and no function that may write, comes before; functions of its own may be defined there."""
    body = re.sub(r"^local function .*?^end\n", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    before, *after = re.split(r"\b(?:check_format|read_topic)\(", body, maxsplit=1)
    assert after
    assert set(re.findall(r"redis\.p?call\('(\w+)'", before)) <= {"HGET", "HMGET"}
    assert calls_in(code_of(before)) <= {"now_ms", "shard", "tonumber", "open_claim"}


@pytest.mark.parametrize(("part", "function"), [("claim_entries", "open_claim"), ("dependents", "read_topic")])
def test_what_may_come_before_reads(part: str, function: str) -> None:
    text = (lua_directory() / "lib" / f"{part}.lua").read_text()
    body = text.partition(f"local function {function}(")[2].partition("\nend")[0]
    assert re.findall(r"redis\.p?call\('(\w+)'", body) == ["HMGET"]
    if function == "read_topic":
        assert calls_in(code_of(body.partition("check_format(")[0])) == set()


def stored(shard: Shard) -> dict[bytes, bytes]:
    """Everything in Redis, but for what is there for a while only."""
    return {key: shard.redis("DUMP", key) for key in shard.redis("KEYS", "*")}


def in_newer_format(shard: Shard, format: Any = FORMAT + 1) -> None:
    """As if a newer version had written the topic."""
    topics = shard.session.keys.topics
    settings = json.loads(shard.redis("HGET", topics, "t")) | {"format": format}
    shard.redis("HSET", topics, "t", json.dumps(settings))
    shard.redis("HSET", shard.k.settings, "format", format)
    shard.checked = False  # the audit refuses, too


@pytest.fixture
def newer(shard: Shard) -> Shard:
    """A shard with a job in every state."""
    shard.enqueue("dead", "running")
    dead, running = shard.claim().rows
    shard.bury(dead)
    shard.release(running)
    shard.take()
    shard.enqueue("ready")
    shard.enqueue("delayed", delay=1)
    shard.clock.advance(1)
    in_newer_format(shard)
    return shard


@pytest.mark.parametrize(
    "name", others_later(CALLS, "claim", "enqueue", "finish", "move", "retry", "cancel", "reclaim", "touch")
)
def test_a_newer_format_is_refused_and_nothing_is_written(newer: Shard, name: str) -> None:
    before = stored(newer)
    with pytest.raises(NewerFormat, match=rf"format {FORMAT + 1}, .* reads formats up to {FORMAT}. Upgrade") as raised:
        newer.run(CALLS[name](newer))
    assert raised.value.format == FORMAT + 1
    assert newer.cutting or stored(newer) == before, "what was cut is undone, and then the same is stored otherwise"


@pytest.mark.parametrize(
    ("format", "read_as"),
    [("two", "?"), ("", "?"), ("nan", "nan"), ("1e999", "inf"), (FORMAT + 0.5, f"{FORMAT}.5"), (9**9, 9**9)],
)
def test_a_format_that_this_version_can_make_nothing_of_is_refused_likewise(
    shard: Shard, format: Any, read_as: int | str
) -> None:
    in_newer_format(shard, format)
    for name in ("enqueue", "configure_shard", "register_topic"):
        with pytest.raises(NewerFormat, match="a newer version of streamdq wrote") as raised:
            shard.run(CALLS[name](shard))
        assert raised.value.format == read_as


def test_the_known_format_is_read(shard: Shard) -> None:
    in_newer_format(shard, FORMAT)
    shard.checked = True
    shard.topic(ttr="5s")
    shard.enqueue("a")
    shard.finish(shard.take())


def test_a_topic_that_is_deleted_is_made_again_in_the_format_of_who_makes_it(newer: Shard) -> None:
    newer.redis("DEL", newer.k.settings, newer.k.jobs, newer.k.counts, newer.k.bucket, newer.k.ready, newer.k.progress)
    newer.redis("DEL", newer.k.history, newer.k.wake, newer.k.ready_of("default"), newer.k.dead_of("default"))
    newer.redis("HDEL", newer.session.keys.topics, "t")
    newer.redis("HSET", newer.k.settings, "version", newer.settings.version)  # what drop_shard leaves
    newer.checked = True
    newer.topic()
    newer.enqueue("a")
    newer.finish(newer.take())
