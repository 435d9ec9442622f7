"""kill -9 at each step: nothing is missing, nothing is there or runs twice, and the books balance all along."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streamdq import Queue
from streamdq.archive.archive import Archive, Kicked
from streamdq.errors import TopicNotEmpty
from streamdq.keys import shard_of
from tests.archive.letters import archived, balanced, bury, dead_now, finish, receipts, rows, states
from tests.killed_at import Die, Killed, killed, name
from tests.servers import Server
from tests.turns import others_later

IDS = sorted(f"j{number}" for number in range(10))
STORING = [
    ("commit", "", 1), ("put", "after", 2), ("take_out", "before", 1), ("take_out", "after", 3), ("commit", "", 4),
    ("mark", "after", 3), ("forget", "before", 2), ("forget", "after", 2),
]  # fmt: skip
KICKING = [
    ("lock", "after", 2), ("turn", "after", 1), ("give_back", "after", 1), ("give_back", "after", 3),
    ("forget", "before", 2), ("forget", "after", 3),
]  # fmt: skip

Kill = Callable[[str, Die], None]


@pytest.fixture(scope="module")
def archivist() -> Iterator[Killed]:
    with killed("tests.archive.killed") as process:
        yield process


@pytest.fixture
def kill(request: pytest.FixtureRequest, archivist: Killed, server: Server, database: str) -> Kill:
    """Has a process of its own store or kick everything, which is killed at a step."""

    def run(do: str, die: Die) -> None:
        archivist.carry_out(do=do, die=die, redis=server.url, database=database)
        if database.startswith("postgresql"):  # what it had locked would be passed over
            request.getfixturevalue("postgres").wait_until_idle()

    return run


@pytest.mark.parametrize("die", others_later(STORING, STORING[4]), ids=name)
def test_killed_while_storing_and_run_again(queue: Queue, server: Server, database: str, kill: Kill, die: Die) -> None:
    bury(queue, *IDS)

    kill("store", die)

    balanced(queue)
    with Archive(database) as archive:
        here, there = dead_now(queue), {row.dead_letter.id for row in rows(archive)}
        assert set(here) | there == set(IDS), "in Redis, in the database, or in both"
        archive.store(queue)
        assert archived(archive) == IDS
        assert len(rows(archive)) == len(IDS)
    assert dead_now(queue) == []
    assert receipts(server) == []
    (balance,) = queue.audit().balances
    assert (balance.enqueued, balance.dead, balance.live) == (10, 10, 0)


@pytest.mark.parametrize("die", [("put", "after", 2), ("take_out", "after", 2)], ids=name)
def test_killed_while_storing_and_kicked_in_redis_meanwhile(queue: Queue, database: str, kill: Kill, die: Die) -> None:
    """A job that was committed, and then kicked in Redis and done there, is not sent once more."""
    bury(queue, *IDS)
    kill("store", die)
    queue.kick("t")
    done = finish(queue)
    assert done
    with Archive(database) as archive:
        archive.store(queue)
        archive.kick(queue)
        assert sorted(done + finish(queue)) == IDS


@pytest.mark.parametrize("die", others_later(KICKING, KICKING[3]), ids=name)
def test_killed_while_kicking_and_run_again(queue: Queue, server: Server, database: str, kill: Kill, die: Die) -> None:
    """Also when what was sent has ended before the next run, so that nothing but the receipts tells of it."""
    bury(queue, *IDS)
    with Archive(database) as archive:
        archive.store(queue)

        kill("kick", die)

        balanced(queue)
        done = finish(queue)
        archive.kick(queue)
        assert sorted(done + finish(queue)) == IDS, "each once"
        assert archive.kick(queue) == Kicked()
        assert archived(archive) == []
    assert receipts(server) == []
    (balance,) = queue.audit().balances
    assert (balance.enqueued, balance.done, balance.dead) == (10, 10, 0)


# -- and the topic has fewer shards when it is run again

LAST_OF_FOUR = [id for number in range(40) if shard_of(id := f"j{number}", 4) == 3]


def test_killed_while_storing_and_its_shard_is_used_no_more(queue: Queue, database: str, kill: Kill) -> None:
    """What it had taken out of there is archived, not left: else nothing would send it back."""
    queue.configure("t", shards=4)
    bury(queue, *LAST_OF_FOUR[:3])
    kill("store", ("take_out", "after", 1))

    queue.configure("t", shards=1)

    with Archive(database) as archive:
        archive.store(queue)
        assert states(archive) == {"archived": 3}


def test_killed_while_kicking_and_its_shard_is_used_no_more(queue: Queue, database: str, kill: Kill) -> None:
    """What had been sent back, and was done, is not sent again."""
    queue.configure("t", shards=4)
    bury(queue, *LAST_OF_FOUR[:3])
    with Archive(database) as archive:
        archive.store(queue)
        kill("kick", ("give_back", "after", 1))
        assert finish(queue) == sorted(LAST_OF_FOUR[:3])

        queue.configure("t", shards=1)

        assert archive.kick(queue) == Kicked()
        assert states(archive) == {"kicked": 3}


def test_killed_while_kicking_and_its_topic_is_deleted_only_afterwards(queue: Queue, database: str, kill: Kill) -> None:
    """Without the receipts, the next run would send the jobs back again."""
    bury(queue, *IDS)
    with Archive(database) as archive:
        archive.store(queue)
        kill("kick", ("forget", "before", 1))
        done = finish(queue)
        with pytest.raises(TopicNotEmpty, match="receipts"):
            queue.delete_topic("t")
        archive.kick(queue)
        assert sorted(done + finish(queue)) == IDS
        queue.delete_topic("t")
