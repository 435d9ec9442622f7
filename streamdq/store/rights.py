"""The commands that streamdq sends, and how to find out whether Redis lets this user run them.

Redis ends a script at the first command that its user may not run, and keeps what the script has written before: a job
would be lost, or counted twice. So no script is called on a server before that server has let this user try each
command, in a call that leaves nothing (``Scripts.check_rights``, lua/rights.lua).
"""

from __future__ import annotations

from collections.abc import Iterable

_TRIALS = """
del @, exists @, get @, getex @, getrange @ 0 1, hdel @ f, hexists @ f, hget @ f, hgetall @, hincrby @ f x, hkeys @,
hlen @, hmget @ f, hscan @ 0, hset @ f v f, hstrlen @ f, info server, persist @, pexpire @ 1, pttl @, set @ v XX,
time, unlink @, xack @ g 1-1, xadd @ NOMKSTREAM * f v, xautoclaim @ g c 1 0-0, xclaim @ g c 1 1-1, xdel @ 1-1,
xgroup DESTROY @ g, xinfo STREAM @, xlen @, xpending @ g, xrange @ - +, xread COUNT 1 STREAMS @ 0,
xreadgroup GROUP g c STREAMS @ >, xrevrange @ + -, xtrim @ MAXLEN 1, zadd @ XX 1 m, zcard @, zcount @ 0 0,
zincrby @ x m, zlexcount @ - +, zrange @ 0 0, zrangebylex @ - +, zrangebyscore @ 0 0, zrem @ m, zremrangebyrank @ 0 0,
zremrangebyscore @ 0 0, zrevrangebylex @ + -, zscan @ 0, zscore @ m
"""
"""A call of each command that changes nothing, as its arguments are wrong or its key does not exist."""
TRIALS = {trial.split()[0]: trial for trial in _TRIALS.replace("\n", " ").strip().split(", ")}
OUTSIDE_SCRIPTS = ("eval", "evalsha", "select", "wait")
COMMANDS = tuple(sorted((*TRIALS, "hsetnx", *OUTSIDE_SCRIPTS)))


def refusal(missing: Iterable[str]) -> str:
    """The error's text."""
    words = " ".join(f"+{name}" for name in missing)
    return (
        f"Redis does not allow this user {words}. A script would end half way, so streamdq calls none. Grant {words} "
        "by `ACL SETUSER`, or all rights that streamdq needs: `streamdq doctor --acl` prints them. If that does not "
        "help, the server's `rename-command` has removed the command"
    )
