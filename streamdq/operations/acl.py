"""The rights that a Redis user needs for a namespace, and no more. Every command that is sent to Redis is in this list:
a test has such a user do all there is to do.
"""

from __future__ import annotations

COMMANDS = (
    "del", "eval", "evalsha", "exists", "get", "getex", "hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys",
    "hlen", "hmget", "hscan", "hset", "hsetnx", "hstrlen", "info", "pexpire", "pttl", "select", "set", "time",
    "unlink", "xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup", "xinfo", "xlen", "xpending", "xrange",
    "xread", "xreadgroup", "xrevrange", "xtrim", "zadd", "zcard", "zcount", "zrange", "zrangebyscore", "zrem",
    "zremrangebyrank", "zscan", "zscore",
)  # fmt: skip
CLUSTER_COMMANDS = ("asking", "cluster|slots")
"""What a client of a Cluster sends beside them, to learn who serves what, and while a slot moves."""


def rights(namespace: str, cluster: bool = False) -> str:
    """What ``ACL SETUSER`` takes."""
    commands = sorted((*COMMANDS, *(CLUSTER_COMMANDS if cluster else ())))
    # The brace begins the hash tag: a namespace that begins with this one's name is none of its.
    keys = f"~{namespace}:{{* ~{{{namespace}}}:*"
    return f"resetkeys {keys} resetchannels -@all " + " ".join(f"+{name}" for name in commands)
