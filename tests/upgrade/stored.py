"""What Redis holds, as a file that another version and another server can load, and its shape."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis

from streamdq import Job, Queue
from streamdq.errors import FORMAT
from streamdq.job.job import FLOWS
from streamdq.version import __version__
from tests.servers import Server
from tests.upgrade.content import DATABASES, filled

FOLDER = Path(__file__).parent / "data"
CURRENT = FOLDER / "current.json.gz"

_ALL = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  found[#found + 1] = {key, redis.call('DUMP', key), redis.call('PTTL', key)}
end
return found
"""


def read(client: redis.Redis) -> list[list[Any]]:
    """All keys at one moment: name, payload of DUMP, and in how many ms it expires (-1: never)."""
    return [[key.decode(), b64encode(payload).decode(), expires] for key, payload, expires in client.eval(_ALL, 0)]


def load(client: redis.Redis, keys: Iterable[list[Any]]) -> None:
    """Into a server that is at least as new as the one that wrote the payloads."""
    for key, payload, expires_ms in keys:
        client.restore(key, max(0, expires_ms), b64decode(payload))


def make(server: Server, path: Path = CURRENT) -> None:
    """Writes what this version keeps, and how it reads it."""
    with server.client() as client, filled(server.url) as (queue, folder):
        content = {
            "version": __version__,
            "format": FORMAT,
            "keys": read(client),
            "databases": {name: _sql(folder / name) for name in DATABASES},
            "topics": described(queue),
        }
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))


def content_of(path: Path) -> dict[str, Any]:
    """What ``make`` wrote."""
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


def described(queue: Queue) -> dict[str, Any]:
    """What a version reads of each topic: its accounts, its jobs, and the state of its flows and schedules."""
    found: dict[str, Any] = {}
    for balance in queue.audit().balances:
        topic = found.setdefault(balance.topic, {"accounts": {}})
        topic["accounts"][balance.group] = {
            name: getattr(balance, name) for name in ("enqueued", "done", "dead", "cancelled", "expired", "live")
        }
    for name, topic in found.items():
        topic["jobs"] = {job.id: _job(job) for job in queue.find(name)}
        topic["schedules"] = {one.id: [one.state, one.next_ms] for one in queue.schedules(name)}
        topic["rows"] = sorted(f"{row.event} {row.id} {row.group}" for row in queue.history(name).rows)
    flows = {id: queue.flow_status(id) for id in found[FLOWS]["jobs"]}
    found[FLOWS]["flows"] = {id: flow and [flow.state, flow.jobs, flow.stages[0].counts] for id, flow in flows.items()}
    described: dict[str, Any] = json.loads(json.dumps(found, default=dict))  # as it is after reading it from a file
    return described


def _job(job: Job) -> dict[str, Any]:
    fields = ("raw_body", "created_ms", "due_ms", "key", "ttr_ms", "retry", "url", "expire_ms", "version")
    known = {name: getattr(job, name) for name in fields}
    known["raw_body"] = b64encode(known["raw_body"]).decode()
    parts = ("state", "attempt", "step", "due_ms", "started_ms", "consumer", "reason", "error", "aborted")
    groups = {name: [getattr(group, part) for part in parts] for name, group in job.groups.items()}
    return known | {"state": job.state, "groups": groups}


def _sql(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


def database(content: dict[str, Any], name: str, folder: Path) -> str:
    """The URL of a SQLite file with what the content has of this database."""
    with contextlib.closing(sqlite3.connect(folder / name)) as database:
        database.executescript(content["databases"][name])
    return f"sqlite:///{folder / name}"


# -- shapes

_CONSUMER = re.compile(r"host-\d+-[0-9a-z]{10}")
_PASSING = re.compile(rb"watch_until|recheck:.*")
"""Fields of a shard's settings that a mover leaves for a while."""
_TAG = re.compile(rb"\{.*\}")
_NUMBER = re.compile(r"[0-9a-f]{12,}|\d+(\.\d+)?(e\+\d+)?")


def _shape_of(value: bytes | str) -> str:
    """The text with numbers as 0."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return _NUMBER.sub("0", _CONSUMER.sub("CONSUMER", text.partition("\\xff")[0]))


def shapes(client: Any) -> dict[str, list[str]]:
    """Of each kind of key: its type, and what is in it in any topic, without what differs from run to run."""
    found: dict[str, set[str]] = {}
    for key in client.scan_iter(count=1000):
        kind = client.type(key).decode()
        name = _shape_of(_TAG.sub(b"{}", key))
        found.setdefault(name, set()).update({kind, *map(_shape_of, _parts(client, key, kind))})
    return {key: sorted(parts) for key, parts in sorted(found.items())}


def _parts(client: Any, key: bytes, kind: str) -> list[bytes]:
    if kind == "string":
        return [client.get(key)]
    if kind == "hash":
        fields = client.hgetall(key).items()
        return [name + b" -> " + _in_order(value) for name, value in fields if not _PASSING.fullmatch(name)]
    if kind == "zset":
        return [member + b" -> 0" for member in client.zrange(key, 0, -1)]
    assert kind == "stream", kind
    entries = [b" ".join(name + b"=" + value for name, value in fields.items()) for _, fields in client.xrange(key)]
    groups = client.xinfo_groups(key)
    return entries + [group["name"] + b": pending " + str(bool(group["pending"])).encode() for group in groups]


def _in_order(value: bytes) -> bytes:
    """A JSON object with its names sorted: Lua writes them in any order."""
    return json.dumps(json.loads(value), sort_keys=True).encode() if value.startswith(b"{") else value
