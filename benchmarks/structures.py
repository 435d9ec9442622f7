"""``python -m benchmarks.structures``: what could hold the waiting jobs in place of one sorted set, by bare scripts.
What is due in more than a minute or two could wait in the minute in which it is due, without order, and be promoted
into the sorted set, a slice at a time, before that minute comes.

For each structure: Redis's µs for a job, inserted in batches and one by one, withdrawn, promoted and moved to a stream,
while ten thousand jobs wait and while ``--jobs`` do; and memory. Then the same of parts of it:
whatever has such a part costs no less. A job has a body of 165 bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Column, Table

from streamdq.embedded.binary import ServerBinary, find_server

from .__main__ import about, environment
from .growth_chart import jobs_in, short
from .harness import BATCH, Bench, hours, median
from .server import RedisServer

FEW, _ROUNDS, _ONES = 10_000, 20, 100
_RECORD, _PACKED_RECORD = 165 + 49, 165 + 23  # bytes: with the head that streamdq writes; with a packed one
_MINUTES = 60

# Every script gets three arguments for each job: record, ms until it is due, member (12 digits and an id).
_JOBS = "for i = 1, #ARGV, 3 do redis.call('HSETNX', 'jobs', string.sub(ARGV[i + 2], 13), ARGV[i]) end "
_NO_JOBS = "for i = 1, #ARGV, 3 do redis.call('HDEL', 'jobs', string.sub(ARGV[i + 2], 13)) end "
_EACH = "for i = 1, #ARGV, 3 do {} end "
_PUT = "t[#t + 1] = ARGV[i + 1] t[#t + 1] = ARGV[i + 2] "
_SORTED = "local t = {} " + _EACH.format(_PUT)
_WHOLE = "local t = {} " + _EACH.format("t[#t + 1] = ARGV[i + 1] t[#t + 1] = ARGV[i + 2] .. ARGV[i] ")
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
# Of one hash: minute -> its open page, 'number, id, id, ...', a line each; minute:number -> a full one. A record says
# which page has its job, so that a job that is withdrawn is cut out of it.
_INTO_PAGES = """
local pages = {}
local function put(field, page) redis.call('HSET', 'pages', field, table.concat(page, '\\n')) end
for i = 1, #ARGV, 3 do
  local minute, id = math.floor(ARGV[i + 1] / 60000), string.sub(ARGV[i + 2], 13)
  local page = pages[minute]
  if not page then
    local text = redis.call('HGET', 'pages', minute) or '0'
    page = {text, number = tonumber(string.match(text, '^%d+')), bytes = #text}
  elseif page.bytes > PAGE_BYTES then
    put(minute .. ':' .. page.number, page)
    page = {string.format('%d', page.number + 1), number = page.number + 1, bytes = 0}
  end
  pages[minute] = page
  local head = string.sub(ARGV[i + 2], 1, 12) .. string.format('%013d%05d', ARGV[i + 1], page.number)
  redis.call('HSETNX', 'jobs', id, head .. string.sub(ARGV[i], 31))
  page[#page + 1], page.bytes = id, page.bytes + #id + 1
end
for minute, page in pairs(pages) do put(minute, page) end
""".replace("PAGE_BYTES", "2000")
_OUT_OF_PAGES = """
for i = 1, #ARGV, 3 do
  local minute, id = math.floor(ARGV[i + 1] / 60000), string.sub(ARGV[i + 2], 13)
  local number = tonumber(string.sub(redis.call('HGET', 'jobs', id), 26, 30))
  local field = minute .. ':' .. number
  local text = redis.call('HGET', 'pages', field)
  if not text then field, text = minute, redis.call('HGET', 'pages', minute) end
  local first, last = string.find(text .. '\\n', '\\n' .. id .. '\\n', 1, true)
  text = string.sub(text, 1, first - 1) .. string.sub(text, last)
  if field ~= minute and not string.find(text, '\\n', 1, true) then
    redis.call('HDEL', 'pages', field)
  else
    redis.call('HSET', 'pages', field, text)
  end
  redis.call('HDEL', 'jobs', id)
end
"""
_PROMOTE_PAGES = """
local ids, waiting = {}, {}
repeat
  local text = redis.call('HGET', 'pages', ARGV[1])
  local number, before = text and tonumber(string.match(text, '^%d+')) or 0, nil
  for id in string.gmatch(text or '', '\\n([^\\n]+)') do ids[#ids + 1] = id end
  while number > 0 and not before do
    number = number - 1
    before = redis.call('HGET', 'pages', ARGV[1] .. ':' .. number)
  end
  if before then
    redis.call('HSET', 'pages', ARGV[1], before)
    redis.call('HDEL', 'pages', ARGV[1] .. ':' .. number)
  else
    redis.call('HDEL', 'pages', ARGV[1])
  end
until not before or #ids > ARGV[2] / 2
if #ids == 0 then return 0 end
for i, record in ipairs(redis.call('HMGET', 'jobs', unpack(ids))) do
  waiting[2 * i - 1], waiting[2 * i] = string.sub(record, 13, 25), string.sub(record, 1, 12) .. ids[i]
end
redis.call('ZADD', 'bucket', unpack(waiting))
return #ids
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
    """Its scripts. ``promote``: a slice of one minute; "" if everything is sorted at once. A part may lack others."""

    name: str
    insert: str
    withdraw: str
    promote: str = ""
    sorted_in: str = "bucket"
    by_due: bool = False  # batches are sorted before
    record: int = _RECORD  # bytes


_ADD, _REMOVE = "redis.call('ZADD', 'bucket', unpack(t))", "redis.call('ZREM', 'bucket', ARGV[i + 2])"
_ONE_SET = _JOBS + _SORTED + _ADD
_OUT_OF_SET = _NO_JOBS + _EACH.format(_REMOVE)
STRUCTURES = (
    Structure("one sorted set", _ONE_SET, _OUT_OF_SET),
    Structure("one sorted set, batches sorted by due", _ONE_SET, _OUT_OF_SET, by_due=True),
    Structure("one sorted set, packed records", _ONE_SET, _OUT_OF_SET, record=_PACKED_RECORD),
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
    Structure("pages for each minute, in one hash", _INTO_PAGES, _OUT_OF_PAGES, _PROMOTE_PAGES),
    Structure("such pages, packed records", _INTO_PAGES, _OUT_OF_PAGES, _PROMOTE_PAGES, record=_PACKED_RECORD),
)
# None of them can do what is needed.
PARTS = (
    Structure("the records alone, by id", _JOBS, _NO_JOBS, sorted_in=""),
    Structure("the sorted set alone", _SORTED + _ADD, _EACH.format(_REMOVE)),
    Structure("records in the sorted set's members", _WHOLE + _ADD, ""),
)


class Costs(NamedTuple):
    """µs for a job, and bytes. 0: there is no such step."""

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


def new_jobs(numbers: Iterable[int], by_due: bool = False, record: int = _RECORD) -> list[object]:
    jobs = [("0" * record, int(hours(i) * 1000) - 3_600_000, f"{i:012x}{i:014d}") for i in numbers]
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
        return new_jobs(range(self._next - count, self._next), self._structure.by_due, self._structure.record)

    def costs(self, size: int) -> Costs:
        """Fills it up to this size, and empties some of it in the end."""
        structure, empty = self._structure, self._server.memory_bytes()
        while self._next < size:
            self.call(structure.insert, self._new(BATCH))
        memory = (self._server.memory_bytes() - empty) / size
        rounds = min(_ROUNDS, size // BATCH // 4)
        insert = [self._us(structure.insert, self._new(BATCH)) for _ in range(rounds)]
        one = [self._us(structure.insert, self._new(1)) for _ in range(_ONES)]
        old = [range(i * BATCH * (size // BATCH // rounds), size)[:BATCH] for i in range(rounds)]
        withdraw = [self._us(structure.withdraw, new_jobs(numbers)) for numbers in old if structure.withdraw] or [0.0]
        promote = self._emptied(rounds) if structure.promote else [0.0]
        moves = max(1, rounds // 5) if structure.sorted_in else 0
        move = [self._us(MOVE, [BATCH, structure.sorted_in]) for _ in range(moves)] or [0.0]
        return Costs(
            insert=median(insert) / BATCH,
            one=_mean_of_middle(one),
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
                if taken == 0:
                    break
                if taken >= BATCH // 2 or not found:
                    found.append(us * BATCH / taken)
        return found


def _mean_of_middle(us: Sequence[float]) -> float:
    """Of the middle half: Redis counts whole µs, which are coarse for a single call."""
    quarter = len(us) // 4
    return mean(sorted(us)[quarter : len(us) - quarter])


def measure(
    bench: Bench, jobs: int, only: str = "", tell: Callable[[str], None] = lambda _: None
) -> dict[str, tuple[Costs, Costs]]:
    """Of each structure whose name has this text, with few jobs and with many."""
    found = {}
    for structure in (one for one in (*STRUCTURES, *PARTS) if only in one.name):
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
    out = Table(
        Column("waiting in", no_wrap=True),
        *columns,
        title=f"Redis's µs for a job, with {short(FEW)} and {short(jobs)} waiting",
    )
    for name, (few, many) in found.items():
        cells = ((getattr(few, of), getattr(many, of)) for of in columns.values())
        if name == PARTS[0].name:
            out.add_section()
        out.add_row(name, *(_shown(*both) for both in cells))
    return out


def _shown(few: float, many: float) -> str:
    if not few:
        return "–"
    return f"{few:.0f}, {many:.0f}" if few > 100 else f"{few:.1f}, {many:.1f} ({many / few:.1f} ×)"


def main(words: Sequence[str] | None = None, binary: ServerBinary | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structures", description=__doc__)
    parser.add_argument("--jobs", type=jobs_in, default=2_000_000, help="such as 20M (2M)")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text (all)")
    given = parser.parse_args(words)
    console = Console(width=None if sys.stdout.isatty() else 180)
    bench = Bench(binary or find_server())
    console.print(table(measure(bench, given.jobs, given.only), given.jobs))
    console.print(about(environment(bench)), style="dim", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
