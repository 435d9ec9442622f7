"""Programs that put jobs into a database's outbox, and the relays that take them from there to Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit
from sqlalchemy import Engine, create_engine, select, update

from streamdq import Queue, outbox
from streamdq.errors import OutboxRelaying, OutboxUnavailable
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay, Totals
from streamdq.outbox.rows import Rows
from streamdq.outbox.tables import HORIZON, ROWS, VERSIONS

from .loop import running
from .model import Serial
from .outbox import Row
from .plan import CONFLICTS, body, key_of, options
from .threads import in_thread

if TYPE_CHECKING:
    from .world import World

_EPOCH_S, _DAY_S, _JULIAN = 1_800_000_000, 86_400, 2_440_587.5
_CALLS = ("take_lease", "release_lease", "write_states", "claim", "waiting", "kept", "relayed", "last", "existing")
"""Of Rows: one transaction each."""


class RolledBack(Exception):
    """A program has changed its mind."""


class Database:
    """The outbox's database: an SQLite file. Its clock is set by nobody; it takes its time, and fails at times."""

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._random = Random(f"{world.seed} database")
        self.url = url
        self.rows: type[Rows] = type("SlowRows", (Rows,), {name: self._slow(getattr(Rows, name)) for name in _CALLS})

    def create(self, horizon_s: int | None) -> None:
        """``horizon_s``: None for none; else far shorter than anybody may choose one, so that rows wait for seconds."""
        self._has_horizon = horizon_s is not None
        rows.create(self.url, "1m" if self._has_horizon else None)
        with self.open() as engine, engine.begin() as db:
            db.execute(update(VERSIONS).values(outbox="simulated"))  # otherwise the database gives it a random name
            db.execute(update(VERSIONS).where(VERSIONS.c.name == HORIZON).values(version=horizon_s))

    def keep_nothing_back(self) -> None:
        """The horizon is longer than any delay from now on, as an operator might set it."""
        if self._has_horizon:
            rows.create(self.url, "3650d")

    @contextmanager
    def open(self) -> Iterator[Engine]:
        engine = create_engine(self.url)
        try:
            yield engine
        finally:
            engine.dispose()

    def connected(self, connection: Any, _record: Any) -> None:
        """A listener to every engine."""
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function("julianday", 1, lambda _: (self._world.loop.time() + _EPOCH_S) / _DAY_S + _JULIAN)

    def _slow(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._take_time("before")
            result = method(*args, **options)
            self._take_time("after")
            return result

        return call

    def _take_time(self, when: str) -> None:
        process = running.get()
        if process is not None and not process.alive:
            raise GreenletExit
        if not self._world.calm and self._random.random() < 0.01:
            self._world.note(f"the database fails {when} a transaction")
            raise OutboxUnavailable("as told")
        hangs = not self._world.calm and self._random.random() < 0.02
        time.sleep(4.0 if hangs else self._random.choice((0.0, 0.001, 0.02, 0.2)))


async def sell(world: World) -> None:
    """The main function of such a program's process."""
    random = world.random
    with world.database.open() as engine:
        while not world.calm:
            await world.pause(1.0)
            try:
                with engine.begin() as db:
                    made = dict(_order(world, db) for _ in range(random.choice((1, 1, 2, 8))))
                    if random.random() < 0.1:
                        raise RolledBack
            except RolledBack:
                world.note("rolled back")
            else:
                world.note("committed")
                world.model.outbox.rows |= made
            if world.changes is not None and world.changes.random() < 0.5:
                _change(world, world.changes, engine)


def _change(world: World, random: Random, engine: Engine) -> None:
    """Cancels or reschedules the rows of an id that wait; or a relay is sending one of them."""
    known = world.model.outbox
    space, row = world.settings.namespace, random.choice(list(known.rows.values()) or [None])
    if row is None:
        return
    delay_s = random.choice((0.0, 1.0, 5.0, 20.0)) if random.random() < 0.5 else None
    try:
        with engine.begin() as db:
            where = ROWS.c.topic == row.topic, ROWS.c.id == row.id, ROWS.c.state == "waiting"
            found = [json.loads(text)["n"] for (text,) in db.execute(select(ROWS.c.body).where(*where))]
            if delay_s is None:
                done = outbox.cancel(db, row.topic, row.id, namespace=space)
            else:
                done = outbox.reschedule(db, row.topic, row.id, delay=delay_s, namespace=space)
            if random.random() < 0.1:
                raise RolledBack
    except (RolledBack, OutboxRelaying) as error:
        world.note(f"no change of a row: {type(error).__name__}")
        return
    if done != bool(found):
        world.model.broken(f"{len(found)} rows of id {row.id} wait, and the change says {done}")
    world.note(f"rows {'cancelled' if delay_s is None else 'rescheduled'}: {min(len(found), 2)}")
    for serial in found:
        if delay_s is None:
            known.cancelled.add(serial)
        else:
            known.rows[serial] = known.rows[serial]._replace(made_s=world.loop.time(), delay_s=delay_s)


def _order(world: World, db: Any) -> tuple[Serial, Row]:
    random, serial = world.random, world.serial()
    topic = random.choice(world.topics)
    given = options(random, world.new_id(topic))
    key = key_of(given["id"]) if world.plan.has_keys else {}
    how = random.choice(CONFLICTS)
    space = world.settings.namespace
    outbox.enqueue(db, topic, body(random, serial), on_conflict=how, namespace=space, **given, **key)
    return serial, Row(topic, given["id"], key.get("key"), world.loop.time(), given["delay"])


async def relay(world: World) -> None:
    """The main function of a relay's process. The first comes long after the first rows, perhaps."""
    await world.pause(12.0)
    while not world.calm:
        once = world.random.random() < 0.3
        world.note_states("reconcile" if once else "relay")
        with world.client("relay"):
            await in_thread(_with_relay, world, Relay.reconcile if once else Relay.run, lambda: world.calm)
        await world.pause(2.0)


async def relay_all(world: World) -> None:
    """Until no row waits."""
    await in_thread(_with_relay, world, partial(Relay.run, burst=True), lambda: False)


async def put_back(world: World) -> bool:
    """Whether Redis had lost jobs of rows that are kept."""
    totals = await in_thread(_with_relay, world, Relay.reconcile, lambda: False)
    return bool(totals.put_back)


def _with_relay(world: World, do: Callable[..., None], stopping: Callable[[], bool]) -> Totals:
    keep = world.model.outbox.keeps
    with (
        Queue(settings=world.settings) as queue,
        Relay(world.database.url, queue, keep=keep, look_every="200ms") as relay,
    ):
        do(relay, stopping)
        return relay.totals


def left_in(database: Database) -> dict[Serial, str]:
    """The rows that are there, by their jobs' serials, and their states."""
    with database.open() as engine, engine.connect() as db:
        return {json.loads(text)["n"]: state for text, state in db.execute(select(ROWS.c.body, ROWS.c.state))}
