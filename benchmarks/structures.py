"""``python -m benchmarks.structures``: what could hold the waiting jobs in place of one sorted set, by bare scripts.
What is due in more than a minute or two could wait in the minute in which it is due, without order, and be promoted
into the sorted set, a slice at a time, before that minute comes.

For each structure: Redis's µs for a job, inserted in batches and one by one, withdrawn, promoted and moved to a stream,
while ten thousand jobs wait and while ``--jobs`` do; and memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from streamdq.embedded.binary import ServerBinary, find_server

from .__main__ import about, environment
from .growth_chart import jobs_in, short
from .harness import BATCH, Bench, hours, median
from .server import RedisServer

FEW, _ROUNDS, _ONES = 10_000, 20, 100
_RECORD = "0" * 150
_MINUTES = 60

# Every script gets three arguments for each job: record, ms until it is due, member (12 digits and an id).
_JOBS = "for i = 1, #ARGV, 3 do redis.call('HSETNX', 'jobs', string.sub(ARGV[i + 2], 13), ARGV[i]) end "
_NO_JOBS = "for i = 1, #ARGV, 3 do redis.call('HDEL', 'jobs', string.sub(ARGV[i + 2], 13)) end "
_EACH = "for i = 1, #ARGV, 3 do {} end "
_PUT = "t[#t + 1] = ARGV[i + 1] t[#t + 1] = ARGV[i + 2] "
_SORTED = "local t = {} " + _EACH.format(_PUT)
_PACKED = "t[#t + 1] = string.format('%05d', ARGV[i + 1] % 60000) .. ARGV[i + 2] "
_MINUTE, _PART = "math.floor(ARGV[i + 1] / 60000)", "(i - 1) / 3 % 8"
# Of a slice of a minute, `found`: those that still have a record go into the sorted set. ARGV[1]: the minute.
_PROMOTE = """
if not found or #found == 0 then return 0 end
local ids, waiting = {}, {}
for i, m in ipairs(found) do ids[i] = string.sub(m, 18) end
for i, record in ipairs(redis.call('HMGET', 'jobs', unpack(ids))) do
  if record then
    waiting[#waiting + 1] = ARGV[1] * 60000 + string.sub(found[i], 1, 5)
    waiting[#waiting + 1] = string.sub(found[i], 6)
  end
end
if #waiting > 0 then redis.call('ZADD', 'bucket', unpack(waiting)) end
return #found
"""
MOVE = """
local due = redis.call('ZRANGEBYSCORE', ARGV[2], '-inf', '+inf', 'LIMIT', 0, ARGV[1])
redis.call('ZREMRANGEBYRANK', ARGV[2], 0, #due - 1)
for _, member in ipairs(due) do redis.call('XADD', 'ready', '*', 'j', member) end
return #due
"""


def _apart(where: str, put: str, command: str) -> str:
    """Each job is put into the table of its place; then the command gets each table ``t`` and its place ``m``."""
    tables = f"local m = {where} places[m] = places[m] or {{}} local t = places[m] {put}"
    return f"local places = {{}} {_EACH.format(tables)} for m, t in pairs(places) do {command} end "


class Structure(NamedTuple):
    """Its scripts. ``promote``: a slice of one minute; "" if everything is sorted at once."""

    name: str
    insert: str
    withdraw: str
    promote: str = ""
    sorted_in: str = "bucket"
    by_due: bool = False  # batches are sorted before


_ONE_SET = _JOBS + _SORTED + "redis.call('ZADD', 'bucket', unpack(t))"
_OUT_OF_SET = _NO_JOBS + _EACH.format("redis.call('ZREM', 'bucket', ARGV[i + 2])")
STRUCTURES = (
    Structure("one sorted set", _ONE_SET, _OUT_OF_SET),
    Structure("one sorted set, batches sorted by due", _ONE_SET, _OUT_OF_SET, by_due=True),
    Structure(
        "eight sorted sets",
        _JOBS + _apart(_PART, _PUT, "redis.call('ZADD', 'part:' .. m, unpack(t))"),
        _NO_JOBS + _EACH.format(f"redis.call('ZREM', 'part:' .. {_PART}, ARGV[i + 2])"),
        sorted_in="part:0",
    ),
    Structure(
        "a set for each minute",
        _JOBS + _apart(_MINUTE, _PACKED, "redis.call('SADD', 'minute:' .. m, unpack(t))"),
        _NO_JOBS + _apart(_MINUTE, _PACKED, "redis.call('SREM', 'minute:' .. m, unpack(t))"),
        "local found = redis.call('SPOP', 'minute:' .. ARGV[1], ARGV[2])" + _PROMOTE,
    ),
    Structure(  # whatever is withdrawn stays there, without a record, until its minute comes
        "a list for each minute",
        _JOBS + _apart(_MINUTE, _PACKED, "redis.call('RPUSH', 'minute:' .. m, unpack(t))"),
        _NO_JOBS,
        "local found = redis.call('LPOP', 'minute:' .. ARGV[1], ARGV[2])" + _PROMOTE,
    ),
)


class Costs(NamedTuple):
    """µs for a job, and bytes."""

    insert: float
    one: float
    withdraw: float
    promote: float
    move: float
    memory: float

    @property
    def way(self) -> float:
        """From its insertion in a batch into the stream."""
        return self.insert + self.promote + self.move


def new_jobs(numbers: Iterable[int], by_due: bool = False) -> list[object]:
    jobs = [(_RECORD, int(hours(i) * 1000) - 3_600_000, f"{i:012x}{i:014d}") for i in numbers]
    if by_due:
        jobs.sort(key=lambda job: job[1])
    return [value for job in jobs for value in job]


class Run:
    """One structure in a server of its own."""

    def __init__(self, server: RedisServer, structure: Structure) -> None:
        self._server = server
        self._structure = structure
        self._scripts: dict[str, Any] = {}
        self._next = 0  # number of the next job

    def call(self, script: str, args: Sequence[object]) -> Any:
        loaded = self._scripts.get(script) or self._server.client.register_script(script)
        self._scripts[script] = loaded
        return loaded(args=args)

    def _us(self, script: str, args: Sequence[object]) -> float:
        before = self._server.script_calls()[1]
        self.call(script, args)
        return float(self._server.script_calls()[1] - before)

    def _new(self, count: int) -> list[object]:
        self._next += count
        return new_jobs(range(self._next - count, self._next), self._structure.by_due)

    def costs(self, size: int) -> Costs:
        """Fills it up to this size, and empties some of it in the end."""
        structure, empty = self._structure, self._server.info("memory")["used_memory"]
        while self._next < size:
            self.call(structure.insert, self._new(BATCH))
        memory = (self._server.info("memory")["used_memory"] - empty) / size
        rounds = min(_ROUNDS, size // BATCH // 4)
        insert = [self._us(structure.insert, self._new(BATCH)) for _ in range(rounds)]
        one = [self._us(structure.insert, self._new(1)) for _ in range(_ONES)]
        old = [range(i * BATCH * (size // BATCH // rounds), size)[:BATCH] for i in range(rounds)]
        withdraw = [self._us(structure.withdraw, new_jobs(numbers)) for numbers in old]
        promote = self._emptied(rounds) if structure.promote else [0.0]
        move = [self._us(MOVE, [BATCH, structure.sorted_in]) for _ in range(max(1, rounds // 5))]
        return Costs(
            insert=median(insert) / BATCH,
            one=median(one),
            withdraw=median(withdraw) / BATCH,
            promote=median(promote) / BATCH,
            move=median(move) / BATCH,
            memory=memory,
        )

    def _emptied(self, slices: int) -> list[float]:
        """Promotes as many full slices, minute by minute."""
        found: list[float] = []
        for minute in range(_MINUTES):
            while len(found) < slices:
                before = self._server.script_calls()[1]
                taken = self.call(self._structure.promote, [minute, BATCH])
                us = float(self._server.script_calls()[1] - before)
                if taken < BATCH:
                    found += [us * BATCH / taken] * (taken > 0 and not found)
                    break
                found.append(us)
        return found


def measure(bench: Bench, jobs: int, tell: Callable[[str], None] = lambda _: None) -> dict[str, tuple[Costs, Costs]]:
    """Of each structure, with few jobs and with many."""
    found = {}
    for structure in STRUCTURES:
        costs = []
        for size in (FEW, jobs):
            with bench.server() as server:
                costs.append(Run(server, structure).costs(size))
        found[structure.name] = (costs[0], costs[1])
        tell(f"{structure.name}: {costs}")
    return found


def table(found: dict[str, tuple[Costs, Costs]], jobs: int) -> Table:
    columns = {"bytes": "memory", "insert": "insert", "insert one": "one", "withdraw": "withdraw",
               "promote": "promote", "move": "move", "insert to move": "way"}  # fmt: skip
    out = Table("waiting in", *columns, title=f"Redis's µs for a job, with {short(FEW)} and {short(jobs)} waiting")
    for name, (few, many) in found.items():
        cells = ((getattr(few, of), getattr(many, of)) for of in columns.values())
        out.add_row(name, *(f"{one:.0f}, {other:.0f}" if one > 100 else f"{one:.1f}, {other:.1f}"
                            for one, other in cells))  # fmt: skip
    return out


def main(words: Sequence[str] | None = None, binary: ServerBinary | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structures", description=__doc__)
    parser.add_argument("--jobs", type=jobs_in, default=2_000_000, help="such as 20M (2M)")
    given = parser.parse_args(words)
    console = Console(width=None if sys.stdout.isatty() else 140)
    bench = Bench(binary or find_server())
    console.print(table(measure(bench, given.jobs), given.jobs))
    console.print(about(environment(bench)), style="dim", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
