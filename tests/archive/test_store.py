"""Into the archive: everything is kept, leaves Redis only once it is there, and only if it is still the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from streamdq import Claim, Queue
from streamdq.archive.archive import Archive, Stored
from streamdq.archive.dead_letters import ArchivedJob, DeadLetter, DeadLetters, RowState, Wanted
from streamdq.archive.store import Store
from streamdq.errors import InvalidInput, ServerRefusesWrites, UnknownGroup, UnknownTopic
from streamdq.link.session import Op
from streamdq.queue import carry_out
from streamdq.testing import ManualClock
from tests.archive.letters import archived, balanced, bury, dead_now, finish, receipts, rows, states, take
from tests.servers import Cluster, Server
from tests.waiting import HANG_S


def test_everything_that_a_job_had_is_kept(queue: Queue, archive: Archive) -> None:
    job = queue.enqueue(
        "order.close", {"text": "für 支付 \x00 \u2028", "n": 1.5}, id="支付-1", ttr="7s", retry="0 0", expire="1h",
        url="https://merchant.example/paid",
    )  # fmt: skip
    for _ in range(3):
        claim = queue.take("order.close", timeout=HANG_S)
        assert claim
        claim.fail(ValueError("card | refused\n"))
    before = int(time.time() * 1000)
    (dead,) = queue.dead("order.close")

    assert archive.store(queue) == Stored(archived=1)

    (row,) = rows(archive)
    letter = row.dead_letter
    assert (letter.topic, letter.group, letter.id) == ("order.close", "default", "支付-1")
    assert (letter.reason, letter.error) == ("exhausted", "ValueError: card | refused ")
    assert (letter.attempts, letter.step, letter.crashes) == (3, 2, 0)
    assert letter.body.encode() == job.raw_body
    assert (letter.created_ms, letter.due_ms) == (job.created_ms, job.due_ms)
    assert (letter.ttr_ms, letter.retry, letter.expire_ms, letter.url) == (
        dead.ttr_ms, dead.retry, dead.expire_ms, "https://merchant.example/paid",
    )  # fmt: skip
    assert job.created_ms <= letter.buried_ms <= before <= row.archived_ms
    assert (row.state, row.kicked_ms) == (RowState.ARCHIVED, None)
    assert queue.get("order.close", "支付-1") is None
    (balance,) = queue.audit().balances
    assert (balance.enqueued, balance.dead, balance.live) == (1, 1, 0)


def test_any_number_and_what_is_passed_over_stays(
    queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.archive.dead_letters.PAGE", 20)
    reported: list[tuple[int, int]] = []
    for number in range(45):
        claim = _take(queue, f"j{number}")
        if number % 3:
            claim.bury("no")
        else:
            claim.fail("no")
    exhausted = sorted(f"j{number}" for number in range(0, 45, 3))

    done = archive.store(queue, reasons=["exhausted"], progress=lambda *figures: reported.append(figures))

    assert done == Stored(archived=15)
    assert archived(archive) == exhausted
    assert len(dead_now(queue)) == 30
    assert reported[-1] == (45, 45)
    balanced(queue)
    assert archive.store(queue) == Stored(archived=30)
    assert dead_now(queue) == []
    assert archive.store(queue) == Stored()
    assert states(archive) == {"archived": 45}


def _take(queue: Queue, id: str) -> Claim:
    queue.enqueue("t", 1, id=id, retry="none")
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    return claim


def test_large_bodies_go_a_few_at_a_time(queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    put = Store.put

    def counted(self: Store, letters: list[DeadLetter]) -> None:
        sizes.append(len(letters))
        put(self, letters)

    monkeypatch.setattr(Store, "put", counted)
    for number in range(12):
        queue.enqueue("t", "x" * 200_000, id=str(number))
    take(queue, 12)
    assert archive.store(queue).archived == 12
    assert max(sizes) <= 6
    assert archive.kick(queue).kicked == 12
    assert len(finish(queue)) == 12


def test_only_the_topic_and_group_asked_for(queue: Queue, archive: Archive) -> None:
    queue.configure("t", groups=["a", "b"])
    queue.enqueue("t", 1, id="j")
    for group in ("a", "b"):
        take(queue, 1, group=group)
    bury(queue, "k", topic="u")

    assert archive.store(queue, "t", "a") == Stored(archived=1)
    assert (dead_now(queue, groups="a"), dead_now(queue, groups="b"), dead_now(queue, "u")) == ([], ["j"], ["k"])
    balanced(queue)
    assert archive.store(queue, group="default") == Stored(archived=1)
    assert archive.store(queue, "t") == Stored(archived=1)
    assert [(row.dead_letter.topic, row.dead_letter.group) for row in rows(archive)] == [
        ("t", "a"), ("u", "default"), ("t", "b"),
    ]  # fmt: skip


def test_only_what_was_buried_long_enough_ago(server: Server, archive: Archive) -> None:
    clock = ManualClock(1_800_000_000_000)
    with Queue(server.url, clock=clock) as queue:
        bury(queue, "old")
        clock.advance("1h")
        bury(queue, "new")
        assert archive.store(queue, older_than="1h") == Stored(archived=1)
        assert (archived(archive), dead_now(queue)) == (["old"], ["new"])


def test_what_is_asked_for_must_exist(queue: Queue, archive: Archive, tmp_path: Path) -> None:
    bury(queue, "j")
    with pytest.raises(UnknownTopic):
        archive.store(queue, "nowhere")
    with pytest.raises(UnknownGroup):
        archive.store(queue, "t", "nobody")
    with pytest.raises(InvalidInput, match="reason: 'tired' is not one of exhausted"):
        archive.store(queue, reasons=["tired"])
    with Archive(f"sqlite:///{tmp_path}/other.db", "other") as other, pytest.raises(InvalidInput, match="namespace"):
        other.store(queue)
    assert dead_now(queue) == ["j"]


@pytest.mark.parametrize("again", [False, True], ids=["kicked", "kicked-and-buried-again"])
def test_a_letter_that_left_between_the_commit_and_its_removal_is_not_taken(
    queue: Queue, archive: Archive, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    put = Store.put

    def kicked_meanwhile(self: Store, letters: list[DeadLetter]) -> None:
        put(self, letters)
        assert queue.kick("t", "j") == 1
        if again:
            take(queue, 1, why="worse")

    bury(queue, "j", "k")
    monkeypatch.setattr(Store, "put", kicked_meanwhile)
    assert archive.store(queue) == Stored(archived=1, left=1)
    monkeypatch.undo()

    assert states(archive) == {"archived": 1, "left": 1}
    balanced(queue)
    if not again:
        assert finish(queue) == ["j"]
        assert archive.kick(queue).kicked == 1
        return
    assert [job.groups["default"].error for job in queue.dead("t")] == ["worse"]
    assert archive.store(queue) == Stored(archived=1)
    assert [(row.dead_letter.error, row.state.value) for row in rows(archive, Wanted(id="j"))] == [
        ("no", "left"), ("worse", "archived"),
    ]  # fmt: skip
    assert archive.kick(queue).kicked == 2


def test_an_id_that_dies_again_gets_another_row(queue: Queue, archive: Archive) -> None:
    for why in ("first", "second"):
        bury(queue, "j", why=why)
        archive.store(queue)
    assert [row.dead_letter.error for row in rows(archive)] == ["first", "second"]
    assert archive.kick(queue, "t", "j").kicked == 1
    (row,) = rows(archive, Wanted(states=(RowState.KICKED,)))
    assert row.dead_letter.error == "second"


def test_redis_that_lost_its_last_moments_is_archived_again(queue: Queue, server: Server, archive: Archive) -> None:
    bury(queue, "j")
    with server.client() as client:
        keys = {key: client.dump(key) for key in client.scan_iter("streamdq:{t:0}:*")}
        archive.store(queue)
        archive.kick(queue)
        client.delete(*client.scan_iter("streamdq:{t:0}:*"))
        for key, value in keys.items():
            client.restore(key, 0, value)
    assert states(archive) == {"kicked": 1}
    assert dead_now(queue) == ["j"]
    assert archive.store(queue) == Stored(archived=1)
    assert states(archive) == {"archived": 1}
    balanced(queue)


def test_on_every_shard_and_over_a_cluster(redis_cluster: Cluster, archive: Archive) -> None:
    with Queue(redis_cluster.url) as queue:
        queue.configure("t", shards=5)
        bury(queue, *(f"j{number}" for number in range(40)))
        assert archive.store(queue) == Stored(archived=40)
        assert queue.stats("t").topics["t"].jobs == 0
        balanced(queue)
        assert archive.kick(queue).kicked == 40
        balanced(queue)
        assert len(finish(queue)) == 40


def test_receipts_of_another_archive_are_left_to_it(
    queue: Queue, server: Server, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(queue, "j")
    monkeypatch.setattr("streamdq.archive.dead_letters.DeadLetters.forget", lambda *_: iter(()))
    archive.store(queue)
    monkeypatch.undo()
    assert len(receipts(server)) == 1
    with Archive(f"sqlite:///{tmp_path}/other.db") as other:
        other.store(queue)
    assert len(receipts(server)) == 1
    archive.store(queue)
    assert receipts(server) == []


def test_it_frees_a_redis_that_is_full(queue: Queue, server: Server, archive: Archive) -> None:
    bury(queue, "a", "b")
    with server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerRefusesWrites):
                queue.enqueue("t", 1)
            assert archive.store(queue) == Stored(archived=2)
        finally:
            client.config_set("maxmemory", 0)


def test_what_another_run_has_just_archived_did_not_leave_by_another_way(
    queue: Queue, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(queue, "a", "b")
    with Archive(database) as archive, Archive(database) as other:
        page = DeadLetters.page

        def overtaken(*args: Any) -> Op[tuple[int, list[DeadLetter]]]:
            found = yield from page(*args)
            monkeypatch.undo()
            assert other.store(queue) == Stored(archived=2)
            return found

        monkeypatch.setattr(DeadLetters, "page", overtaken)
        assert archive.store(queue) == Stored()
        assert archived(archive) == ["a", "b"]


def test_what_another_run_is_archiving_where_it_was_put_before_the_number_of_shards_changed(
    queue: Queue, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"j{number}" for number in range(20)]
    bury(queue, *ids)
    queue.configure("t", shards=3)
    take_out, rows_of = DeadLetters.take_out, Store.rows
    with Archive(database) as archive, Archive(database) as other, Queue(queue._url) as second:

        def overtaken(self: DeadLetters, *args: Any) -> Op[list[bool]]:
            gone: list[bool] = []

            def after_the_receipts(store: Store, *wanted: Any) -> list[ArchivedJob]:
                monkeypatch.undo()
                gone.extend(carry_out(queue, take_out(self, *args)))
                return rows_of(store, *wanted)

            monkeypatch.undo()
            monkeypatch.setattr(Store, "rows", after_the_receipts)
            other.store(second)
            yield from ()
            return gone

        monkeypatch.setattr(DeadLetters, "take_out", overtaken)
        assert archive.store(queue).left == 0
        assert archived(archive) == sorted(ids)
