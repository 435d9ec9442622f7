"""``python -m benchmarks.memory``: where the bytes of a delayed job are, and the least that a job takes if a hash finds
it by its id and a sorted set by its due time. Both are calculated from the sizes that Redis's allocator gives out, and
measured.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from string import ascii_letters, digits
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from streamdq import NewJob, Queue
from streamdq.embedded.binary import ServerBinary, find_server

from .__main__ import about, environment
from .enqueue import body_of_size, memory_growth
from .harness import BATCH, NAMESPACE, TOPIC, Bench, hours
from .server import RedisServer

_JOBS, _BODY_BYTES = 100_000, 165
_ID, _SEQUENCE = 14, 12
_ID_LENGTHS = (6, 10, _ID, 18, 22, 36)
_HEADS = {"with its record's head": 49, "with a packed head": 23, "body alone": 0}
"""Bytes before the body. 49: as streamdq writes it. 23: six bytes each for sequence, due and created, four for the
nonce, and one that says that it has no further field.
"""
_ENTRY, _SLOT, _NODE, _LEVEL = 24, 8, 24, 16  # structures of Redis 6.2 to 7.2, in bytes
_LEVELS = range(1, 13)
_SIZE = re.compile(r"^ +(\d+) +\d+ +\d+ ", re.MULTILINE)


class Part(NamedTuple):
    """Of a job: bytes that are used, and those that the allocator gives for them. Both are means."""

    name: str
    used: float
    given: float


def allocator_sizes(server: RedisServer) -> list[int]:
    """The sizes that jemalloc gives out, in order.

    Raises:
        RuntimeError: Redis uses another allocator.
    """
    stats = server.client.execute_command("MEMORY MALLOC-STATS")
    text = stats.decode() if isinstance(stats, bytes) else stats
    sizes = sorted({int(size) for size in _SIZE.findall(text.partition("bins:")[2])})
    if not sizes:
        raise RuntimeError("Redis uses no jemalloc here, so the sizes that it gives out are not known")
    return sizes


def text_bytes(length: int) -> int:
    """What Redis's string type needs for a text: up to 31 bytes have a shorter header."""
    return length + (2 if length < 32 else 4 if length < 256 else 6)


def parts(sizes: Sequence[int], jobs: int, record: int, id: int, member: int) -> list[Part]:
    """Of one of so many jobs: ``record``, ``id`` and ``member`` are the lengths of these texts."""

    def given(size: int) -> int:
        return sizes[bisect_left(sizes, size)]

    def part(name: str, size: int) -> Part:
        return Part(name, size, given(size))

    slots = 1 << (jobs - 1).bit_length()
    chance = {level: 0.75 * 0.25 ** (level - 1) for level in _LEVELS}
    node = {level: _NODE + _LEVEL * level for level in _LEVELS}
    tables = _SLOT * slots / jobs
    return [
        part("record", text_bytes(record)),
        part("id as the hash's field", text_bytes(id)),
        part("the hash's entry", _ENTRY),
        Part("slots of the hash's table", tables, tables),
        part("member of the sorted set", text_bytes(member)),
        part("the sorted set's entry", _ENTRY),
        Part("slots of its table", tables, tables),
        Part("a node of its skip list", sum(chance[n] * node[n] for n in _LEVELS),
             sum(chance[n] * given(node[n]) for n in _LEVELS)),
    ]  # fmt: skip


def total(of: Sequence[Part]) -> float:
    return sum(part.given for part in of)


def delayed_job(bench: Bench, size: int) -> tuple[list[Part], float]:
    """The parts of a delayed job with a body of so many bytes, and its bytes as measured."""
    jobs = bench.jobs(_JOBS)
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:
        sizes = allocator_sizes(server)
        queue.enqueue(TOPIC, body_of_size(0, size), delay="3h")  # scripts and settings are there already
        new = [NewJob(body_of_size(i, size), delay=hours(i)) for i in range(jobs)]
        used = memory_growth(server, lambda: queue.enqueue_many(TOPIC, new))
    head = _HEADS["with its record's head"]
    return parts(sizes, jobs + 1, size + head, _ID, _SEQUENCE + _ID), used / jobs


class Least(NamedTuple):
    """What jobs with ids of one length take: calculated for each kind of record; measured of ids and bodies alone."""

    calculated: Mapping[str, float]
    measured: float


def least(bench: Bench, size: int, lengths: Sequence[int] = _ID_LENGTHS) -> dict[int, Least]:
    """By the length of ids. But for the body alone, the member has the sequence as well."""
    jobs = bench.jobs(_JOBS)
    found = {}
    for length in lengths:
        with bench.server() as server:
            sizes = allocator_sizes(server)
            measured = memory_growth(server, _bare(server, jobs, length, size)) / jobs
        found[length] = Least(
            {kind: total(parts(sizes, jobs, size + head, length, length + _SEQUENCE * (head > 0)))
             for kind, head in _HEADS.items()},
            measured,
        )  # fmt: skip
    return found


def _bare(server: RedisServer, jobs: int, length: int, size: int) -> Callable[[], None]:
    """One HSET and one ZADD for a batch of jobs that have an id of this length, and a body."""
    rng, letters = random.Random(7), ascii_letters + digits
    ids: list[str] = []
    while len(set(ids)) < jobs:
        ids = list({*ids, *("".join(rng.choices(letters, k=length)) for _ in range(jobs - len(ids)))})
    body = json.dumps(body_of_size(0, size), separators=(",", ":"))

    def run() -> None:
        for i in range(0, jobs, BATCH):
            batch = ids[i : i + BATCH]
            server.client.hset("bare:jobs", mapping=dict.fromkeys(batch, body))
            server.client.zadd("bare:bucket", {id: 1e12 + hours(i + n) * 1000 for n, id in enumerate(batch)})

    return run


def table_of_parts(found: Sequence[Part], measured: float, size: int) -> Table:
    out = Table("part", "used", "given", title=f"Bytes of a delayed job with a body of {size} bytes")
    for part in found:
        out.add_row(part.name, f"{part.used:.1f}", f"{part.given:.1f}")
    out.add_section()
    out.add_row("together", f"{sum(part.used for part in found):.0f}", f"{total(found):.0f}")
    out.add_row("measured", "", f"{measured:.0f}")
    return out


def table_of_least(found: Mapping[int, Least], size: int) -> Table:
    out = Table("letters of the id", *_HEADS, "body alone, measured",
                title=f"Bytes of a job in a hash and a sorted set, body of {size} bytes")  # fmt: skip
    for length, row in found.items():
        out.add_row(str(length), *(f"{row.calculated[kind]:.0f}" for kind in _HEADS), f"{row.measured:.0f}")
    return out


def main(words: Sequence[str] | None = None, binary: ServerBinary | None = None, scale: float = 1.0) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--body", type=int, default=_BODY_BYTES, metavar="BYTES", help=f"of JSON ({_BODY_BYTES})")
    given = parser.parse_args(words)
    console = Console(width=None if sys.stdout.isatty() else 140)
    bench = Bench(binary or find_server(), scale=scale)
    console.print(table_of_parts(*delayed_job(bench, given.body), given.body))
    console.print(table_of_least(least(bench, given.body), given.body))
    console.print(about(environment(bench)), style="dim", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
