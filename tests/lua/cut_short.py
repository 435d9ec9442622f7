"""Scripts that end half way, after each of their writes, though no cause of that is known.

docs/decisions/01-scripts-run-to-their-end.md says why none is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis

from streamdq.link.command import Command
from streamdq.link.session import Op, Request
from streamdq.store.assembly import Script
from tests.lua.moving import script_of

_READS = frozenset({
    "EXISTS", "GET", "GETRANGE", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "HSTRLEN", "INFO", "PTTL",
    "TIME", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREVRANGE", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX",
    "ZRANGEBYSCORE", "ZREVRANGEBYLEX", "ZSCAN", "ZSCORE",
})  # fmt: skip
"""The commands of scripts that change nothing."""
_WRITES_CUT = (*range(1, 16), 20, 30, 50, 100)
_CUT = """local real, left, reads = redis, %d, {%s}
local function cut(call, name, ...)
  local reply = call(name, ...)
  if not reads[name] then
    left = left - 1
    if left == 0 then error('CUT SHORT', 0) end
  end
  return reply
end
local redis = {
  call = function(...) return cut(real.call, ...) end,
  pcall = function(...) return cut(real.pcall, ...) end,
}
"""
_READING = ", ".join(f"{name} = true" for name in sorted(_READS))
UNNOTICED = re.compile(
    r"(running|ready|waiting|waiting_for_key) of .*: -?\d+, counted -?\d+"
    r"|\d+ jobs are detached, counted are -?\d+"
    r"|dead letters of .*"
    r"|.* runs in .* without its entry"
    r"|links: .*"  # the mover looks again at every job that waits for others, and tells every ending again
    r"|waiting: .*|b'.* waits for b'.*"  # of keys: how many wait, and whether another one should be the next
)
"""What the audit does not tell of: counters that the accounts don't need, and the order of a key's jobs."""
_OF_LEAVING = re.compile(r"tickets .*|.* is out of date|.* are to start, .*|b'.* waiting and \d+ admitted")
"""What a group that leaves has in the bucket, and its admitted jobs: the next call removes them."""


class CutShort:
    """Before each script that writes, the same is called and cut after each of its writes; what that did is undone."""

    def __init__(self, url: str, check: Callable[[str, int], None]) -> None:
        """``check``: called after each cut, with the script's name and the number of its writes."""
        self._client, self._check = redis.Redis.from_url(url), check

    def cut_first(self, op: Op[Any]) -> Op[Any]:
        """The operation."""
        step = next(op)
        try:
            while True:
                if isinstance(step, Request):
                    for command in step.commands:
                        self._cut(command)
                try:
                    reply = yield step
                except Exception as error:
                    step = op.throw(error)
                else:
                    step = op.send(reply)
        except StopIteration as stop:
            return stop.value

    def _cut(self, command: Command) -> None:
        script = script_of(command)
        if script is None or not script.writes or script.name == "rights":
            return
        before = self._stored()
        for writes in _WRITES_CUT:
            try:
                if not self._is_cut(script, command.args[2:], writes):
                    return
                self._check(script.name, writes)
            finally:
                self._restore(before)

    def _is_cut(self, script: Script, rest: Sequence[Any], writes: int) -> bool:
        """Calls the script; returns whether it was cut, or has ended before."""
        try:
            self._client.execute_command("EVAL", _CUT % (writes, _READING) + script.source, *rest)
        except redis.ResponseError as error:
            return "CUT SHORT" in str(error)
        return False

    def _stored(self) -> list[tuple[bytes, bytes, int]]:
        """All keys, as they are stored, and how long they still have; 0: for ever."""
        keys: Sequence[Any] = self._client.keys("*")
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.dump(key)
                pipeline.pttl(key)
            replies = pipeline.execute()
        return list(zip(keys, replies[::2], [max(0, ms) for ms in replies[1::2]], strict=True))

    def _restore(self, stored: Sequence[tuple[bytes, bytes, int]]) -> None:
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.flushall()
            for key, value, ms in stored:
                pipeline.restore(key, ms, value)
            pipeline.execute()

    def close(self) -> None:
        self._client.close()


def missed(wrong: Iterable[str], ids: Iterable[bytes], leaving: bool = False) -> list[str]:
    """What of this the audit would have to tell of. ``ids``: of the jobs that are there; what is left of another one's
    progress is of no use, and does no harm. ``leaving``: a group is being removed, with what it has.
    """
    there = re.compile("|".join(["(?!)", *(re.escape(f"{id!r} ") for id in ids)]))
    return [
        text
        for text in wrong
        if not UNNOTICED.fullmatch(text)
        and ("is in no stream" not in text or there.match(text))
        and not (leaving and _OF_LEAVING.fullmatch(text))
    ]
