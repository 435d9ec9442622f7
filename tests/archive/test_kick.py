"""Back from the archive: whole, to its group alone, once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamdq import Queue
from streamdq.archive.archive import Archive, Kicked
from streamdq.archive.dead_letters import DeadLetters, RowState, Wanted
from streamdq.archive.store import Store
from streamdq.errors import InvalidInput, UnknownGroup, UnknownTopic
from streamdq.link.session import Op
from tests.archive.letters import archived, balanced, bury, finish, rows, states, take
from tests.servers import Server
from tests.waiting import HANG_S


def accounts(queue: Queue, group: str = "default") -> tuple[int, int, int, int]:
    """enqueued, done, dead and live, which balance."""
    audit = queue.audit()
    assert audit.balanced, audit
    (one,) = [balance for balance in audit.balances if balance.group == group]
    return one.enqueued, one.done, one.dead, one.live


def test_it_comes_back_whole_and_the_books_balance_at_every_stage(queue: Queue, archive: Archive) -> None:
    given = queue.enqueue(
        "t", {"text": "für \x00 支付"}, id="j", ttr="7s", retry="1s 2s", expire="1h", url="https://a.example/b"
    )
    take(queue, 1)
    assert accounts(queue) == (1, 0, 1, 0)
    archive.store(queue)
    assert accounts(queue) == (1, 0, 1, 0)

    assert archive.kick(queue, "t", "j") == Kicked(kicked=1)

    assert accounts(queue) == (1, 0, 0, 1)
    back = queue.get("t", "j")
    assert back is not None
    for name in ("raw_body", "created_ms", "ttr_ms", "retry", "expire_ms", "url"):
        assert getattr(back, name) == getattr(given, name), name
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    assert (claim.job.attempt, claim.job.step) == (2, 0)
    claim.finish()
    assert accounts(queue) == (1, 1, 0, 0)
    (row,) = rows(archive)
    assert row.state is RowState.KICKED
    assert row.kicked_ms is not None
    assert archive.kick(queue, "t", "j") == Kicked()


def test_a_job_with_a_key_goes_and_comes_back_to_the_shard_of_its_key(queue: Queue, archive: Archive) -> None:
    queue.configure("t", shards=8)
    for number in range(20):
        queue.enqueue("t", number, id=f"j{number}", key="merchant-7", url="https://a.example/b" if number % 2 else None)
    take(queue, 20)
    archive.store(queue)
    assert accounts(queue) == (20, 0, 20, 0)
    assert archive.kick(queue) == Kicked(kicked=20)
    assert accounts(queue) == (20, 0, 0, 20)
    back = [queue.get("t", f"j{number}", key="merchant-7") for number in range(20)]
    assert {(job.key, job.url) for job in back if job} == {("merchant-7", None), ("merchant-7", "https://a.example/b")}
    assert all(back)
    archive.kick(queue)
    assert not any(row.dead_letter.key != "merchant-7" for row in rows(archive))


def test_a_job_with_a_key_is_found_by_its_id_in_a_topic_that_had_no_key_before(queue: Queue, archive: Archive) -> None:
    queue.configure("t", shards=8)
    for number in range(20):
        queue.enqueue("t", number, id=f"j{number}", key="merchant-7")
    take(queue, 20)
    archive.store(queue)
    queue.delete_topic("t", force=True)
    queue.configure("t", shards=8)
    assert archive.kick(queue) == Kicked(kicked=20)
    assert all(queue.get("t", f"j{number}") for number in range(20))


def test_all_of_them_in_batches(queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.archive.archive._KICK_BATCH", 20)
    ids = sorted(f"j{number}" for number in range(50))
    bury(queue, *ids)
    archive.store(queue)
    reported: list[tuple[int, int]] = []
    assert archive.kick(queue, progress=lambda *figures: reported.append(figures)) == Kicked(kicked=50)
    assert reported == [(20, 50), (40, 50), (50, 50)]
    assert accounts(queue) == (50, 0, 0, 50)
    assert finish(queue) == ids
    assert archive.kick(queue) == Kicked()


def test_by_topic_group_and_reason(queue: Queue, archive: Archive) -> None:
    bury(queue, "a")
    bury(queue, "b", topic="u")
    queue.enqueue("u", 1, id="c", retry="none")
    claim = queue.take("u", timeout=HANG_S)
    assert claim
    claim.fail("no")
    archive.store(queue)
    assert archive.kick(queue, "u", reasons=["exhausted"]) == Kicked(kicked=1)
    assert archive.kick(queue, "u", group="default") == Kicked(kicked=1)
    assert archived(archive) == ["a"]
    assert finish(queue, "u") == ["b", "c"]


def test_only_the_group_that_gave_it_up_gets_it(queue: Queue, archive: Archive) -> None:
    queue.configure("t", groups=["mail", "sms"])
    queue.enqueue("t", 1, id="j")
    assert finish(queue, group="mail") == ["j"]
    take(queue, 1, group="sms")
    archive.store(queue)
    assert archive.kick(queue, "t", "j") == Kicked(kicked=1)
    assert accounts(queue, "mail") == (1, 1, 0, 0)
    assert accounts(queue, "sms") == (1, 0, 0, 1)
    assert finish(queue, group="mail") == []
    assert finish(queue, group="sms") == ["j"]
    assert queue.get("t", "j") is None


@pytest.mark.parametrize("id", ["j", None])
def test_dead_in_two_groups_it_comes_back_to_both(queue: Queue, archive: Archive, id: str | None) -> None:
    queue.configure("t", groups=["mail", "sms"])
    queue.enqueue("t", 1, id="j")
    for group in ("mail", "sms"):
        take(queue, 1, group=group)
    archive.store(queue)
    assert archive.kick(queue, "t", id) == Kicked(kicked=2)
    balanced(queue)
    job = queue.get("t", "j")
    assert job is not None
    assert finish(queue, group="mail") == ["j"]
    assert finish(queue, group="sms") == ["j"]
    assert queue.get("t", "j") is None
    balanced(queue)
    assert archive.kick(queue) == Kicked()


def test_an_id_that_is_live_again_is_reported_and_not_overwritten(queue: Queue, archive: Archive) -> None:
    bury(queue, "j", "k")
    archive.store(queue)
    queue.enqueue("t", "new", id="j", delay="1h")
    assert archive.kick(queue) == Kicked(kicked=1, live_count=1, live=[("t", "default", "j")])
    live = queue.get("t", "j")
    assert live is not None
    assert live.body == "new"
    assert archived(archive) == ["j"]
    queue.cancel("t", "j")
    assert archive.kick(queue, "t", "j") == Kicked(kicked=1)


def test_into_a_redis_that_never_had_it(queue: Queue, server: Server, archive: Archive) -> None:
    bury(queue, "j")
    bury(queue, "k", topic="u")
    archive.store(queue)
    server.flush()
    with Queue(server.url) as fresh:
        with pytest.raises(UnknownTopic):
            archive.kick(fresh, "t", "j")
        fresh.configure("t", groups=["default", "audit"])
        done = archive.kick(fresh)
        assert (done.kicked, list(done.unknown.values())) == (1, [1])
        assert accounts(fresh) == (1, 0, 0, 1)
        assert accounts(fresh, "audit") == (0, 0, 0, 0)
        fresh.configure("u", groups=["other"])
        with pytest.raises(UnknownGroup):
            archive.kick(fresh, "u", "k")
        assert finish(fresh) == ["j"]
        assert archived(archive) == ["k"]


def test_no_receipt_is_left_if_the_number_of_shards_changes_meanwhile(
    queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(f"j{number}" for number in range(20))
    bury(queue, *ids)
    archive.store(queue)
    give_back = DeadLetters.give_back

    def ended_and_spread_anew(*args: Any) -> Op[list[Any]]:
        there = yield from give_back(*args)
        assert finish(queue) == ids
        queue.configure("t", shards=4)
        return there

    monkeypatch.setattr(DeadLetters, "give_back", ended_and_spread_anew)
    assert archive.kick(queue) == Kicked(kicked=20)


def test_what_left_redis_by_another_way_comes_back_only_on_request(
    queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Store.put

    def purged_meanwhile(self: Store, letters: list[object]) -> None:
        put(self, letters)  # type: ignore[arg-type]
        queue.purge("t", all=True)

    bury(queue, "j")
    monkeypatch.setattr(Store, "put", purged_meanwhile)
    archive.store(queue)
    monkeypatch.undo()
    assert states(archive) == {"left": 1}
    assert archive.kick(queue) == archive.kick(queue, "t", "j") == Kicked()
    assert archive.kick(queue, "t", "j", left=True) == Kicked(kicked=1)
    balanced(queue)


def test_two_at_once_send_each_job_once(
    queue: Queue, archive: Archive, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.archive.archive._KICK_BATCH", 10)
    bury(queue, *(f"j{number}" for number in range(80)))
    archive.store(queue)
    done: list[Kicked] = []
    barrier = threading.Barrier(2)

    def run() -> None:
        with Archive(database) as mine, Queue(queue._url) as own:
            barrier.wait()
            done.append(mine.kick(own))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    ended = 0
    while any(thread.is_alive() for thread in threads) or queue.stats("t").ready:
        ended += len(finish(queue))  # a job that ends at once must not be sent again
    assert ended == 80
    assert sum(each.kicked for each in done) == 80
    assert accounts(queue) == (80, 80, 0, 0)


def test_jobs_that_die_again_at_once_are_not_sent_for_ever(
    queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(queue, "j", "k")
    archive.store(queue)

    def dies_again(_done: int, _total: int) -> None:
        take(queue, 1)
        archive.store(queue)

    monkeypatch.setattr("streamdq.archive.archive._KICK_BATCH", 1)
    assert archive.kick(queue, progress=dies_again) == Kicked(kicked=2)
    again = rows(archive, Wanted(states=(RowState.ARCHIVED,)))
    assert [(row.dead_letter.id, row.dead_letter.attempts) for row in again] == [("j", 2), ("k", 2)]


def test_an_id_needs_its_topic(queue: Queue, archive: Archive) -> None:
    with pytest.raises(InvalidInput, match="pass the topic"):
        archive.kick(queue, id="j")
