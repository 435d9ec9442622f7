"""The least rights that a Redis user needs for a namespace. The list has every command that streamdq sends: a test runs
everything as such a user.
"""

from __future__ import annotations

from ...store.rights import COMMANDS

CLUSTER_COMMANDS = ("asking", "cluster|slots")
"""What clients of a Cluster send as well: to learn which node serves which slot, and while a slot migrates."""

TRACKING_COMMANDS = ("client|caching", "client|tracking", "hello")
"""What is sent to be notified of changes: of results, and on a Cluster of shards with news. Without them, results
are polled.
"""

FUNCTION_COMMANDS = ("fcall", "function|load")
"""What is sent to a server that has functions, from Redis 7.0 on. Others refuse a list with these commands. Without
them, scripts are called by EVALSHA.
"""


def more_rights() -> str:
    """The arguments for another ``ACL SETUSER``, on a server that has functions."""
    return " ".join(f"+{name}" for name in FUNCTION_COMMANDS)


def rights(namespace: str, cluster: bool = False) -> str:
    """The arguments for ``ACL SETUSER``."""
    commands = sorted((*COMMANDS, *TRACKING_COMMANDS, *(CLUSTER_COMMANDS if cluster else ())))
    # The brace starts the hash tag, so the pattern does not match namespaces whose name only begins like this name.
    keys = f"~{namespace}:{{* ~{{{namespace}}}:*"
    return f"resetkeys {keys} resetchannels -@all " + " ".join(f"+{name}" for name in commands)
