"""Flows: how one is built, opened or withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...config import TopicSettings
from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..calling import ScriptCalls
from ..jobs.links import Ending, ending_in


class Run(NamedTuple):
    """A flow, in its shard. ``life``: tells it from others of its name; "": whichever it is."""

    shard: ShardKeys
    name: str
    life: str


class Decided(NamedTuple):
    """Reply of decide_flow. ``state``: "o" = it is open, "w" = it was withdrawn, "" = neither. ``left``: how many gates
    have not ended.
    """

    state: str
    left: int
    gates: list[Ending]


class Swept(NamedTuple):
    """Reply of sweep_flows. ``has_more``: call it again. ``next_ms``: otherwise, when; -1: not before a flow is begun,
    or has ended. ``late``: the flows whose deadline has passed.
    """

    now_ms: int
    has_more: bool
    next_ms: int
    late: list[Run]


class FlowScripts(ScriptCalls):
    def begin_flow(self, run: Run, topic: TopicSettings, within_ms: int, deadline_ms: int) -> Op[tuple[int, str]]:
        """1: done; 0: the caller's settings of the topic are out of date; -1: there is such a flow; -2: one is being
        built, with this life. ``deadline_ms`` 0: never.
        """
        args = (self._now(), topic.layout.text, run.name, run.life, within_ms, deadline_ms)
        code, life = yield from self._run("begin_flow", keys_of("begin_flow", run.shard), args)
        return code, life.decode()

    def add_gate(self, run: Run, number: int, within_ms: int, followers: Sequence[str]) -> Op[bool]:
        """False: the flow is no longer being built. ``followers``: who waits for the gate (links.follower)."""
        args = (self._now(), run.name, run.life, number, within_ms, *followers)
        reply: int = yield from self._run("add_gate", keys_of("add_gate", run.shard), args)
        return reply == 1

    def decide_flow(self, run: Run, how: str) -> Op[Decided]:
        """``how``: open; withdraw, unless it is open; cancel: the same, and nothing is added to it any more; forget: as
        withdraw, and its deadline is forgotten. Repeat it while gates are left.
        """
        args = (self._now(), run.name, run.life, how)
        state, left, *rest = yield from self._run("decide_flow", keys_of("decide_flow", run.shard), args)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return Decided(state.decode(), left, [ending_in(field.decode(), text.decode()) for field, text in pairs])

    def record_flows(self, shard: ShardKeys, seen: tuple[str, str], rows: Sequence[str]) -> Op[bool]:
        """``seen``: up to which entry of the history this mover had looked before, and has now. False: another one has
        looked meanwhile, or the topic was deleted.
        """
        args = (self._history, *seen, *rows)
        reply: int = yield from self._run("record_flows", keys_of("record_flows", shard), args)
        return reply == 1

    def sweep_flows(self, shard: ShardKeys, limit: int) -> Op[Swept]:
        args = (self._now(), self._history, limit)
        now_ms, left, next_ms, *late = yield from self._run("sweep_flows", keys_of("sweep_flows", shard), args)
        pairs = zip(late[::2], late[1::2], strict=True)
        return Swept(now_ms, left == 1, next_ms, [Run(shard, name.decode(), life.decode()) for name, life in pairs])
