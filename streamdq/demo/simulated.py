"""Test data: the history that a shop's queue might have, of any size, in the layout of a dump.

It has everything that the analytics look for: a daily and a weekly rhythm, bursts, topics that fail in their own ways,
the default
retry steps with dead letters that are kicked in the morning, cancels, expiries, attempts handed back at a deployment
and taken over after crashes, a bad morning, and consumers that are not equally loaded. The same arguments give the same
rows.

An hour is made at a time, as arrays. What a job does in later hours (its retries) waits in memory until they come, so
memory depends on the events of a day, not on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dump.arrow import arrow_schema, pyarrow, write_parquet
from ..dump.folder import Folder
from ..dump.manifest import DumpFile, Manifest, load_manifest, path_of, remove_strays, update_manifest
from ..errors import InvalidInput, MissingExtra
from ..job.retry import DEFAULT_RETRY, RetrySchedule
from ..store.history.rows import Event

if TYPE_CHECKING:
    import pyarrow as pa

HOUR_MS = 3_600_000
START_MS = 1_767_571_200_000  # Monday, 2026-01-05
_END_MS = 253_402_214_400_000  # 9999-12-31
LETTER = "s"
_STEPS = RetrySchedule.of(DEFAULT_RETRY).steps_ms
_EVENTS = tuple(Event)
_CODE = {event: code for code, event in enumerate(_EVENTS)}
_REASONS = ("", "exhausted", "buried", "invalid", "crashed")
_CONSUMERS = tuple(f"worker-{n}-{4000 + n}-{n:010}" for n in range(1, 9))
# By hour of the day, UTC, and by day of the week from Monday.
_DAY = (2, 1, 1, 1, 1, 2, 4, 7, 10, 12, 13, 14, 15, 14, 13, 13, 14, 16, 18, 20, 19, 14, 8, 4)
_WEEK = (10, 10, 10, 11, 13, 16, 14)
_SLICE = 200_000


@dataclass(frozen=True, slots=True)
class Kind:
    """How a topic behaves. ``fails``: the share of attempts; ``hopeless``: the share of jobs that never succeed."""

    topic: str
    share: float
    shards: int
    delay_ms: int
    run_ms: float
    ttr_ms: int
    fails: float
    hopeless: float
    errors: tuple[str, ...]
    cancelled: float = 0.0
    expired: float = 0.0
    invalid: float = 0.0
    crashes: float = 0.0005
    group: str = "default"
    body_bytes: int = 180
    keys: int = 0  # how many keys its jobs have


KINDS = (
    Kind("order.close", 0.34, 4, 1_800_000, 12, 60_000, 0.004, 0.0002, ("OperationalError",), cancelled=0.72),
    Kind("payment.notify", 0.28, 4, 0, 140, 30_000, 0.06, 0.012, ("ConnectTimeout", "HTTPStatusError", "ReadTimeout"),
         invalid=0.0003, body_bytes=640, keys=97),
    Kind("groupbuy.cancel", 0.08, 1, 7_200_000, 35, 60_000, 0.01, 0.0005, ("OperationalError", "KeyError"),
         cancelled=0.4),
    Kind("refund.check", 0.10, 2, 60_000, 420, 120_000, 0.22, 0.004, ("Retry", "TimeoutError"), crashes=0.002),
    Kind("appointment.remind", 0.12, 1, 86_400_000, 60, 30_000, 0.02, 0.001, ("SMTPServerDisconnected",), expired=0.01),
    Kind("audit.trail", 0.08, 1, 0, 4, 60_000, 0.0005, 0.00001, ("OSError",), group="audit", body_bytes=900),
)  # fmt: skip
_ERRORS = ("", "ValidationError", "Bury", *sorted({name for kind in KINDS for name in kind.errors}))
_GROUPS = ("default", "audit")


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of a simulation."""

    rows: int
    files: int


def numpy() -> Any:
    """The module numpy.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtra("numpy", "dump") from error
    return np


def simulate(
    folder: Folder,
    events: int,
    days: int,
    seed: int,
    start_ms: int = START_MS,
    tell: Callable[[int, int | None], None] = lambda _rows, _total: None,
    *,
    quiet: bool = False,
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> Simulated:
    """Writes a dump of ``events`` rows over ``days`` into the folder. ``tell`` is called with the rows of each file.
    ``quiet``: without bursts and without a bad morning. ``change`` gets the rows of each hour before they are written;
    it may change values, not how many rows there are. If it is killed, it leaves no dump, because the manifest is
    written last.

    Raises:
        InvalidInput: the folder holds a dump, or the arguments ask for no rows.
    """
    if events < 1 or days < 1:
        raise InvalidInput("events and days: at least 1 of each")
    if not 0 <= start_ms <= _END_MS - days * 24 * HOUR_MS:
        raise InvalidInput("start: the days must lie between 1970-01-01 and 9999-12-30")
    pyarrow()
    with folder.lock("dump", "a dump"):
        if load_manifest(folder) is not None:
            raise InvalidInput(f"{folder.url} holds a dump already: simulated rows go into a folder of their own")
        remove_strays(folder, Manifest(), LETTER)
        files: list[DumpFile] = []
        for hour, rows in _Shop(events, days, seed, start_ms, quiet=quiet).hours():
            files.append(_write_hour(folder, hour, change(table_of(rows)), len(files)))
            tell(len(rows), None)

        def fill(manifest: Manifest) -> None:
            manifest.id, manifest.namespace, manifest.files = "simulated", "simulated", files

        return Simulated(update_manifest(folder, fill, new=True).rows, len(files))


class _Shop:
    """Generates one hour after the other."""

    def __init__(self, events: int, days: int, seed: int, start_ms: int, *, quiet: bool) -> None:
        np = numpy()
        self._np = np
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._left = events
        self._first = start_ms // HOUR_MS
        self._jobs = 0
        self._later: dict[int, list[Any]] = {}
        self._per_job = 1.15
        self._row = np.dtype(
            [("kind", "i1"), ("shard", "i4"), ("event", "i1"), ("job", "i8"), ("attempt", "i4"), ("step", "i4"),
             ("consumer", "i1"), ("created", "i8"), ("due", "i8"), ("moved", "i8"), ("started", "i8"),
             ("finished", "i8"), ("error", "i1"), ("reason", "i1"), ("body_bytes", "i8")]
        )  # fmt: skip
        self._plan = self._planned(events, days, 0 if quiet else 0.01)
        bad_hour = int(self._random.integers(len(self._plan) // 2, len(self._plan)))
        self._bad_hours = range(0) if quiet else range(bad_hour, bad_hour + 6)

    def _planned(self, events: int, days: int, bursts: float) -> Any:
        """How many rows each hour has; their sum is ``events``. ``bursts``: the share of hours with one."""
        np = self._np
        hours = np.arange(days * 24)
        weight = np.array(_DAY)[(self._first + hours) % 24] * np.array(_WEEK)[((self._first + hours) // 24 + 3) % 7]
        weight = weight * self._random.lognormal(0, 0.08, len(hours))
        burst = self._random.random(len(hours)) < bursts
        weight = np.where(burst, weight * self._random.uniform(2, 4, len(hours)), weight)
        ends = np.rint(np.cumsum(weight) / weight.sum() * events).astype("i8")
        return np.diff(ends, prepend=0)

    def hours(self) -> Any:
        """(hour since 1970, its rows by time) in turn; hours without rows are left out."""
        np, behind = self._np, 0
        for index, planned in enumerate(self._plan):
            hour, last = self._first + index, index == len(self._plan) - 1
            parts = self._later.pop(hour, [])
            target = self._left if last else int(planned) + behind
            have = sum(map(len, parts))
            while have < target:
                made = self._make(index, max(1, min(_SLICE, int((target - have) / self._per_job))))
                parts += made
                have += sum(map(len, made))
                if not last:
                    break
            rows = np.concatenate(parts) if parts else np.empty(0, self._row)
            rows = rows[np.argsort(rows["finished"], kind="stable")][: self._left]
            self._left -= len(rows)
            behind = target - len(rows)
            if len(rows):
                yield hour, rows

    def _make(self, index: int, count: int) -> list[Any]:
        """About ``count`` jobs that are due in the hour, all their rows; returns those that end in it."""
        shares = [kind.share for kind in KINDS]
        now: list[Any] = []
        for code, jobs in enumerate(self._random.multinomial(count, shares)):
            rows = self._begin(index, code, int(jobs))
            called_off = self._call_off(rows, KINDS[code])
            parts = [rows[called_off], *self._attempts(index, rows[~called_off])]
            for part in parts:
                now += self._sorted_in(self._first + index, part)
        return now

    def _begin(self, index: int, code: int, count: int) -> Any:
        """Jobs of a kind that are due in the hour, before their first attempt."""
        kind, rows = KINDS[code], self._np.zeros(count, self._row)
        rows["kind"] = code
        rows["job"] = self._jobs + self._np.arange(count)
        self._jobs += count
        rows["shard"] = self._random.integers(0, kind.shards, count)
        rows["due"] = (self._first + index) * HOUR_MS + self._random.integers(0, HOUR_MS, count)
        delay = kind.delay_ms
        if delay > HOUR_MS:  # an appointment is made hours or days before
            delay = (delay * self._random.uniform(0.1, 1, count)).astype("i8")
        rows["created"] = rows["due"] - delay
        rows["moved"] = rows["started"] = -1
        rows["body_bytes"] = self._np.maximum(2, self._random.normal(kind.body_bytes, kind.body_bytes / 8, count))
        return rows

    def _call_off(self, rows: Any, kind: Kind) -> Any:
        """Cancels some, and lets some expire. Returns which."""
        dice = self._random.random(len(rows))
        cancelled, expired = dice < kind.cancelled, dice >= 1 - kind.expired
        rows["event"][cancelled], rows["event"][expired] = _CODE[Event.CANCELLED], _CODE[Event.EXPIRED]
        # Cancelled in this hour, between creation and due time.
        rows["finished"][cancelled] = rows["due"][cancelled]
        delay = rows["due"][cancelled] - rows["created"][cancelled]
        ahead = (self._random.random(len(delay)) * delay).astype("i8")
        rows["due"][cancelled] += ahead
        rows["created"][cancelled] += ahead
        late = rows["due"][expired] + self._random.integers(60_000, HOUR_MS, expired.sum())
        rows["finished"][expired], rows["moved"][expired] = late, late
        rows["consumer"][expired] = self._consumers(kind, expired.sum())
        return cancelled | expired

    def _attempts(self, index: int, rows: Any) -> Any:
        """All attempts of jobs of one kind, in rounds: the first of each, the second of those that have one ..."""
        np, random = self._np, self._random
        if not len(rows):
            return
        kind = KINDS[rows["kind"][0]]
        fails = min(0.9, kind.fails * (8 if index in self._bad_hours else 1))
        hopeless = random.random(len(rows)) < kind.hopeless
        rows["attempt"] = 1
        while len(rows):
            self._run(rows, kind)
            dice = random.random(len(rows))
            crashed = dice < kind.crashes
            back = self._deployed(rows["started"]) & ~crashed
            invalid = (rows["attempt"] == 1) & (dice > 1 - kind.invalid)
            failed = (hopeless | (random.random(len(rows)) < fails)) & ~crashed & ~back
            buried = failed & (random.random(len(rows)) < 0.01)
            over = invalid | buried | (failed & (rows["step"] == len(_STEPS)))
            event = np.full(len(rows), _CODE[Event.DONE])
            event[failed], event[over] = _CODE[Event.RETRY], _CODE[Event.DEAD]
            event[crashed], event[back] = _CODE[Event.RECLAIMED], _CODE[Event.RELEASED]
            rows["event"] = event
            rows["finished"][crashed] = rows["started"][crashed] + kind.ttr_ms
            rows["due"][crashed & (rows["attempt"] > 1)] = -1  # as with real ones
            rows["error"], rows["reason"] = 0, 0
            rows["error"][failed] = self._errors(kind, failed.sum())
            rows["reason"][over] = _REASONS.index("exhausted")
            for which, error, reason in ((buried, "Bury", "buried"), (invalid, "ValidationError", "invalid")):
                rows["error"][which], rows["reason"][which] = _ERRORS.index(error), _REASONS.index(reason)
            yield rows.copy()
            yield from self._kick(rows[over], kind)
            again = (crashed | back | failed) & ~over
            rows, hopeless = self._next(rows[again]), hopeless[again]

    def _run(self, rows: Any, kind: Kind) -> None:
        """One attempt of each job, successful so far."""
        count, random = len(rows), self._random
        rows["moved"] = rows["due"] + (random.random(count) < 0.2)
        rows["started"] = rows["moved"] + random.lognormal(0.6, 0.8, count).astype("i8")
        rows["finished"] = rows["started"] + 1 + (kind.run_ms * random.lognormal(0, 0.5, count)).astype("i8")
        rows["consumer"] = self._consumers(kind, count)

    def _next(self, rows: Any) -> Any:
        """The jobs that have another attempt, prepared for it."""
        retry, released = rows["event"] == _CODE[Event.RETRY], rows["event"] == _CODE[Event.RELEASED]
        steps = self._np.array([*_STEPS, 0])
        rows["due"] = rows["finished"] + self._np.where(retry, steps[rows["step"]], 0)
        rows["step"] += retry
        rows["attempt"] += ~released
        return rows

    def _kick(self, dead: Any, kind: Kind) -> Any:
        """Most dead jobs are sent back the next morning, and then succeed."""
        rows = dead[self._random.random(len(dead)) < 0.7]
        if not len(rows):
            return
        morning = (rows["finished"] // (24 * HOUR_MS) + 1) * 24 * HOUR_MS + 8 * HOUR_MS
        rows["finished"] = rows["due"] = morning + self._random.integers(0, 600_000, len(rows))
        rows["event"] = _CODE[Event.KICKED]
        rows["moved"] = rows["started"] = -1
        rows["step"] = rows["error"] = rows["reason"] = 0
        yield rows.copy()
        self._run(rows, kind)
        rows["attempt"] += 1
        rows["event"] = _CODE[Event.DONE]
        yield rows

    def _deployed(self, started: Any) -> Any:
        """Whether the attempt ran when the workers were replaced: on working days, at half past two, for a second."""
        working = (started // (24 * HOUR_MS) + 3) % 7 < 5
        return working & (started % (24 * HOUR_MS) // 1000 == (14 * 60 + 30) * 60)

    def _consumers(self, kind: Kind, count: int) -> Any:
        """Some consumers get more than others; a group has its own."""
        split = 6
        if kind.group == "audit":
            return 1 + split + self._random.integers(0, len(_CONSUMERS) - split, count)
        return 1 + (split * self._random.random(count) ** 1.3).astype("i1")

    def _errors(self, kind: Kind, count: int) -> Any:
        codes = self._np.array([_ERRORS.index(name) for name in kind.errors])
        return codes[(len(codes) * self._random.random(count) ** 2).astype("i1")]

    def _sorted_in(self, hour: int, rows: Any) -> list[Any]:
        """Sets rows that end in later hours aside; returns the rest."""
        hours = rows["finished"] // HOUR_MS
        now = hours == hour
        if now.all():
            return [rows]
        for later in self._np.unique(hours[~now]):
            self._later.setdefault(int(later), []).append(rows[hours == later])
        return [rows[now]]


def _write_hour(folder: Folder, hour: int, rows: pa.Table, number: int) -> DumpFile:
    path = path_of(hour, f"{LETTER}{number + 1:09}")
    with folder.writing(path, durable=False) as file:
        write_parquet(rows, file)
    return DumpFile(path=path, rows=len(rows), bytes=folder.size(path))


def table_of(rows: Any) -> pa.Table:
    """The rows, sorted by time, with the columns of a dump; each stream's entries are in order."""
    np, pa = numpy(), pyarrow()
    texts = {
        "topic": _named([kind.topic for kind in KINDS], rows["kind"]),
        "group": _named([kind.group for kind in KINDS], rows["kind"]),
        "event": _named(_EVENTS, rows["event"]),
        "consumer": _named([None, *_CONSUMERS], np.where(rows["event"] == _CODE[Event.KICKED], 0, rows["consumer"])),
        "error": _named([name or None for name in _ERRORS], rows["error"]),
        "reason": _named([name or None for name in _REASONS], rows["reason"]),
        "id": _joined("job-", rows["job"]),
        "entry": _entries(rows),
        "key": _keys(rows),
    }
    times = {
        name: pa.array(rows[name] * 1000, pa.timestamp("us", tz="UTC"), mask=rows[name] < 0)
        for name in ("created", "due", "moved", "started", "finished")
    }
    numbers = {name: pa.array(rows[name]) for name in ("shard", "attempt", "step", "body_bytes")}
    found = texts | times | numbers
    return pa.table([found[name] for name in arrow_schema().names], schema=arrow_schema())


def _named(names: Any, codes: Any) -> pa.Array:
    pa = pyarrow()
    return pa.array([None if name is None else str(name) for name in names], pa.string()).take(pa.array(codes))


def _joined(prefix: str, numbers: Any) -> pa.Array:
    pa = pyarrow()
    return pa.compute.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _keys(rows: Any) -> pa.Array:
    np, pa = numpy(), pyarrow()
    keys = np.array([kind.keys for kind in KINDS])[rows["kind"]]
    chosen = rows["job"] % np.maximum(keys, 1)
    return pa.compute.if_else(pa.array(keys > 0), _joined("merchant-", chosen), pa.scalar(None, pa.string()))


def _entries(rows: Any) -> pa.Array:
    """Ids in Redis's form: ms-sequence, with a sequence per stream and millisecond."""
    np, pa = numpy(), pyarrow()
    order = np.lexsort((rows["finished"], rows["shard"], rows["kind"]))
    key = np.stack([rows[name][order] for name in ("kind", "shard", "finished")])
    position = np.arange(len(rows))
    begins = np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)]
    sequence = np.empty(len(rows), "i8")
    sequence[order] = position - np.maximum.accumulate(np.where(begins, position, 0))
    texts = (pa.array(values).cast(pa.string()) for values in (rows["finished"], sequence))
    return pa.compute.binary_join_element_wise(*texts, "-")
