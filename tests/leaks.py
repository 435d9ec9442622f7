"""What may stay in Redis after a test: the keys that streamdq/keys.py declares, and whatever expires by itself."""

from __future__ import annotations

import re
from typing import Any

from streamdq.keys import NamespaceKeys, ShardKeys

_NAMES = {"NAMESPACE": r"[A-Za-z0-9._:-]{1,64}", "TOPIC": r"[^\s{}]+", "GROUP": r"[A-Za-z0-9._-]{1,64}", "77": r"\d+"}


def permanent_keys() -> re.Pattern[str]:
    """Every key that a topic keeps as long as it exists; the mover's lease and the probe are none, they expire."""
    names, shard = NamespaceKeys("NAMESPACE"), ShardKeys("NAMESPACE", "TOPIC", 77)
    fixed = [getattr(shard, slot) for slot in ShardKeys.__slots__ if slot not in ("topic", "shard", "prefix")]
    keys = [names.topics, names.wake, names.secret, *fixed, shard.ready_of("GROUP"), shard.dead_of("GROUP")]
    text = "|".join(re.escape(key) for key in keys)
    for placeholder, pattern in _NAMES.items():
        text = text.replace(placeholder, pattern)
    return re.compile(text)


def leaked_keys(client: Any) -> list[str]:
    """Keys that nobody owns: not declared as permanent, and without an expiry. ``client``: of one node."""
    permanent = permanent_keys()
    keys = [key.decode() for key in client.scan_iter(count=1000)]
    return sorted(key for key in keys if not permanent.fullmatch(key) and client.pttl(key) == -1)
