"""A topic of four shards under load and kills leaves nothing behind in any of them."""

import random

from streamdq import NewJob
from tests.crash.worker_processes import IN_TURNS, WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS

SHARDS = 4
NUMBERS = (2, 4, 3, 2)
KILLS = 4


def fill(processes: WorkerProcesses, number: int) -> list[str]:
    """One kind after another: done at once, later, at the second attempt, and never."""
    kind = f"kind-{number}"
    work = (Work(ms=5), Work(ms=20), Work(fail=1), Work(bury=True))[number % 4]
    ids = []
    for i in range(60):
        delay = 0.02 * (i % 30) if number % 4 == 1 else None
        ids.append(processes.put(f"{kind}-{i}", work, topic="sharded", delay=delay))
    return ids


def test_sharded_load_with_kills_leaves_nothing(processes: WorkerProcesses) -> None:
    processes.queue.configure("sharded", shards=SHARDS, max_deliveries=KILLS + 1)
    chance = random.Random(5)
    options = Options(topics=("sharded",), concurrency=8, ttr="1s", retry="100ms")
    workers = [processes.start(options, lease_s=1) for _ in range(3)]
    ids: list[str] = []
    for number in range(2 * KILLS):
        ids += fill(processes, number)
        done = len(ids) // 2
        until(lambda: len(processes.journal.ids("end") | processes.journal.ids("raised")) >= done, "half is done")  # noqa: B023
        if number % 2:
            workers.pop(chance.randrange(len(workers))).kill()
            workers.append(processes.start(options, lease_s=1))
    cancelled = [id for id in ids[::7] if processes.queue.cancel("sharded", id)]

    audit = processes.emptied()
    (account,) = audit.balances
    buried = {job.id for job in processes.queue.dead("sharded", limit=1000)}
    ended = processes.journal.ids("end")
    assert ended | buried | set(cancelled) == set(ids), "lost"
    assert not ended & buried
    assert (account.enqueued, account.dead, account.cancelled) == (len(ids), len(buried), len(cancelled))
    assert processes.queue.purge("sharded", all=True) == len(buried)
    # A job that was cancelled between its read and its claim leaves an entry, which goes when that claim comes, or when
    # reclaim sees that its consumer is gone.
    until(lambda: left_in(processes.server, "sharded", SHARDS) == {}, "no entry is left")
    assert processes.queue.audit().balanced


def test_the_number_of_shards_changes_under_load_and_kills(processes: WorkerProcesses) -> None:
    """Jobs that ran before, at their second attempt, and that never succeed are there all the time; so is an id that is
    asked for again and again.
    """
    processes.queue.configure("sharded", shards=SHARDS - 1, max_deliveries=KILLS + 1)
    chance = random.Random(7)
    options = Options(topics=("sharded",), concurrency=8, ttr="1s", retry="100ms")
    workers = [processes.start(options, lease_s=1) for _ in range(3)]
    ids = [processes.put("far off", Work(), topic="sharded", delay=600)]
    for number, shards in enumerate(NUMBERS):
        ids += fill(processes, number)
        changed = processes.queue.configure("sharded", shards=shards)
        assert changed.former
        workers.pop(chance.randrange(len(workers))).kill()
        workers.append(processes.start(options, lease_s=1))
        ids += fill(processes, number + len(NUMBERS))
        result = processes.queue.enqueue_many("sharded", [NewJob({}, id="far off", delay=600)])
        assert result.existing == ["far off"]
        done = len(ids) // 2
        until(lambda: len(processes.journal.ids("end") | processes.journal.ids("raised")) >= done, "half is done")  # noqa: B023
    assert processes.queue.audit().balanced
    assert processes.queue.reschedule("sharded", "far off", delay=0)

    audit = processes.emptied()
    (account,) = audit.balances
    buried = {job.id for job in processes.queue.dead("sharded", limit=1000)}
    ended = processes.journal.ids("end")
    assert ended | buried == set(ids), "lost"
    assert not ended & buried
    assert (account.enqueued, account.dead) == (len(ids), len(buried))
    assert processes.queue.purge("sharded", all=True) == len(buried)
    until(lambda: left_in(processes.server, "sharded", SHARDS) == {}, "no entry is left")
    until(lambda: not processes.queue.configure("sharded").former, "it has settled")
