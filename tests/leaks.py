"""What may stay in Redis after a test: keys that streamdq/keys.py declares, and keys that expire; and in ready streams,
only entries that something will still remove.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from streamdq.keys import NamespaceKeys, ShardKeys

_NAMES = {"NAMESPACE": r"[A-Za-z0-9._:-]{1,64}", "TOPIC": r"[^\s{}]+", "GROUP": r"[A-Za-z0-9._-]{1,64}", "77": r"\d+"}


@cache
def permanent_keys() -> re.Pattern[str]:
    """Every key that a topic keeps as long as it exists; not the mover's lease and the probe, which expire."""
    names, shard = NamespaceKeys("NAMESPACE"), ShardKeys("NAMESPACE", "TOPIC", 77)
    not_permanent = {"absent", "namespace", "topic", "shard", "prefix"}
    fixed = [getattr(shard, slot) for slot in ShardKeys.__slots__ if slot not in not_permanent]
    keys = [
        names.topics,
        names.dumps,
        names.wake,
        names.mover_stopped,
        names.secret,
        *fixed,
        shard.ready_of("GROUP"),
        shard.ranked_of("GROUP"),
        shard.dead_of("GROUP"),
    ]
    text = "|".join(re.escape(key) for key in keys)
    for placeholder, pattern in _NAMES.items():
        text = text.replace(placeholder, pattern)
    return re.compile(text)


def leaked_keys(client: Any) -> list[str]:
    """Keys without an owner: not declared as permanent, and without an expiry; and ready streams with entries without
    an owner. ``client``: of one node.
    """
    permanent = permanent_keys()
    keys = [key.decode() for key in client.scan_iter(count=1000)]
    leaked = [key for key in keys if not permanent.fullmatch(key) and client.pttl(key) == -1]
    leaked += [f"{key}: {entries}" for key in keys if _READY.search(key) and (entries := _ownerless(client, key))]
    return sorted(leaked)


_READY = re.compile(r"^(.*\}):ready(:[^:]+)?$")


def _ownerless(client: Any, stream: str) -> list[bytes]:
    """Entries that every group has read, that are pending in none, and that are not a current delivery of a job: no
    script will ever see them again. In a topic that never had a second group, some wait to be trimmed, and are counted.
    """
    found = _READY.search(stream)
    if found is None or client.type(stream) != b"stream":
        return []
    if not client.xlen(stream):
        return []
    groups, owned = client.xinfo_groups(stream), set()
    for group in groups:
        owned |= {row["message_id"] for row in client.xpending_range(stream, group["name"], "-", "+", 100_000)}
    delivered = min((_order(group["last-delivered-id"]) for group in groups), default=(0, 0))
    shared, left = found[2] is None, []
    for entry, fields in client.xrange(stream):
        member = fields[b"j"]
        record = client.hget(f"{found[1]}:jobs", member[12:]) if shared else None
        if _order(entry) <= delivered and entry not in owned and not (record and record[:12] == member[:12]):
            left.append(entry)
    overtaken = int(client.hget(f"{found[1]}:settings", "overtaken") or 0) if shared else 0
    return left if len(left) > overtaken else []


def _order(entry: bytes) -> tuple[int, int]:
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)
