"""kill -9 at each step: no order is missing, and none is closed twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from streamdq import Queue, outbox
from streamdq.errors import OutboxRelaying
from streamdq.keys import shard_of
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay
from tests.killed_at import Die, Killed, killed, name
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.servers import Server
from tests.turns import others_later

IDS = [f"o{number}" for number in range(10)]
STEPS = [
    ("take_lease", "after", 1), ("waiting", "after", 2), ("enqueue", "before", 1), ("enqueue", "after", 1),
    ("enqueue", "after", 3), ("commit", "", 1), ("commit", "", 2), ("write_states", "after", 1),
    ("write_states", "after", 3),
    ("release_lease", "after", 1),
]  # fmt: skip
FORGETTING = [("forget", "before", 1), ("forget", "after", 1), ("forget", "after", 3), ("write_states", "after", 4)]
CHECKING = [
    ("fates", "after", 1), ("write_states", "before", 1), ("write_states", "after", 1), ("forget", "before", 1),
    ("forget", "after", 1), ("write_states", "after", 2),
]  # fmt: skip

Kill = Callable[[str, Die, bool], None]


@pytest.fixture(scope="module")
def relayer() -> Iterator[Killed]:
    with killed("tests.outbox.killed") as process:
        yield process


@pytest.fixture
def kill(request: pytest.FixtureRequest, relayer: Killed, server: Server, database: str, shop: Shop) -> Kill:
    """Has a process of its own relay or reconcile, which is killed at a step. Its lease need not be waited for."""

    def run(do: str, die: Die, keep: bool) -> None:
        relayer.carry_out(do=do, die=die, keep=keep, redis=server.url, database=database)
        if database.startswith("postgresql"):  # what it had locked would be passed over
            request.getfixturevalue("postgres").wait_until_idle()
        shop.sql("UPDATE streamdq_outbox_relays SET until_ms = 0")

    return run


def check(queue: Queue, shop: Shop, server: Server, keep: bool) -> list[str]:
    """Finishes what is due, and relays and finishes the rest."""
    done = finish(queue)
    with Relay(shop.url, queue, keep=keep) as relay:
        relay.run(burst=True)
        done += finish(queue)
        relay.reconcile()
        done += finish(queue)
    assert shop.states() == {}
    assert receipts(server) == []
    return done


@pytest.mark.parametrize(
    "die",
    others_later(STEPS + FORGETTING, ("commit", "", 1), FORGETTING[1]),
    ids=name,
)
def test_killed_and_run_again(queue: Queue, shop: Shop, server: Server, kill: Kill, die: Die) -> None:
    """What it had put into Redis has ended before the next run, so that only the receipts tell of it."""
    shop.order(*IDS)
    kill("relay", die, False)
    assert check(queue, shop, server, False) == IDS


CLAIMING = [
    ("claim", "before", 1), ("claim", "after", 1), ("commit", "", 2), ("waiting", "after", 2), ("enqueue", "before", 1),
    ("enqueue", "after", 1), ("write_states", "after", 1), ("forget", "after", 1), ("claim", "after", 2),
]  # fmt: skip


@pytest.mark.parametrize("die", others_later(CLAIMING, ("claim", "after", 1), ("enqueue", "after", 1)), ids=name)
def test_killed_with_a_horizon(queue: Queue, shop: Shop, server: Server, kill: Kill, die: Die) -> None:
    """Rows that it had marked are relayed once, unless they were cancelled: then they never are."""
    rows.create(shop.url, "1d")
    shop.order(*IDS)
    shop.order("far", delay="9d")
    kill("relay", die, False)
    cancelled = []
    for id in [*IDS, "far"]:
        with contextlib.suppress(OutboxRelaying), shop.sale() as db:
            if outbox.cancel(db, TOPIC, id):
                cancelled.append(id)
    assert "far" in cancelled
    done = check(queue, shop, server, False)
    assert done == [id for id in IDS if id not in cancelled]


@pytest.mark.parametrize("die", others_later(STEPS, ("enqueue", "after", 3)), ids=name)
def test_killed_while_keeping_and_run_again(queue: Queue, shop: Shop, server: Server, kill: Kill, die: Die) -> None:
    shop.order(*IDS)
    kill("relay", die, True)
    assert check(queue, shop, server, True) == IDS


@pytest.mark.parametrize("die", others_later(CHECKING, ("fates", "after", 1), ("write_states", "after", 1)), ids=name)
def test_killed_while_it_looks_after_ended_jobs(
    queue: Queue, shop: Shop, server: Server, relay: Relay, kill: Kill, die: Die
) -> None:
    shop.order(*IDS)
    relay._keep = True
    relay.run(burst=True)
    done = finish(queue)
    kill("reconcile", die, True)
    assert done + check(queue, shop, server, True) == IDS


@pytest.mark.parametrize(
    "die",
    others_later(
        [CHECKING[0], CHECKING[2], ("enqueue", "after", 1), ("write_states", "after", 5)], ("enqueue", "after", 1)
    ),
    ids=name,
)
def test_killed_while_it_puts_back_lost_jobs(
    queue: Queue, shop: Shop, server: Server, relay: Relay, kill: Kill, die: Die
) -> None:
    shop.order(*IDS)
    relay._keep = True
    relay.run(burst=True)
    server.flush()
    kill("reconcile", die, True)
    assert sorted(check(queue, shop, server, True)) == IDS


# -- and the topic has other shards when it is run again

LAST_OF_FOUR = [id for number in range(40) if shard_of(id := f"o{number}", 4) == 3][:3]
FIRST_OF_FOUR = [id for number in range(40) if shard_of(id := f"o{number}", 4) == 0][:3]


CHANGES = [(keep, *change) for keep in (False, True) for change in (
    (4, 1, LAST_OF_FOUR), (1, 4, LAST_OF_FOUR), (4, 1, FIRST_OF_FOUR),
)]  # fmt: skip


@pytest.mark.parametrize("change", others_later(CHANGES, CHANGES[0], CHANGES[4]))
def test_killed_and_the_topic_has_other_shards(
    queue: Queue, shop: Shop, server: Server, kill: Kill, change: tuple[bool, int, int, list[str]]
) -> None:
    """What had been put in, and was done, is not put in again."""
    keep, before, after, ids = change
    queue.configure(TOPIC, shards=before)
    shop.order(*ids)
    kill("relay", ("enqueue", "after", 1), keep)
    assert finish(queue) == ids
    queue.configure(TOPIC, shards=after)
    assert check(queue, shop, server, keep) == []
