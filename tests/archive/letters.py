"""Creates dead letters, and counts where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from streamdq import NewJob, Queue
from streamdq.archive import Archive
from streamdq.archive.dead_letters import ArchivedJob, RowState, Wanted
from tests.servers import Server
from tests.waiting import HANG_S

EVERY = Wanted()


def bury(queue: Queue, *ids: str, topic: str = "t", group: str = "default", why: str = "no", **fields: Any) -> None:
    """Enqueues jobs and has the group bury them."""
    queue.enqueue_many(topic, [NewJob({"n": id}, id=id, **fields) for id in ids])
    take(queue, len(ids), topic, group, why)


def take(queue: Queue, count: int, topic: str = "t", group: str = "default", why: str = "no") -> None:
    """Has the group bury the ready jobs."""
    for _ in range(count):
        claim = queue.take(topic, group, timeout=HANG_S)
        assert claim
        claim.bury(why)


def finish(queue: Queue, topic: str = "t", group: str = "default") -> list[str]:
    """Finishes all jobs that are ready for the group; returns their ids."""
    done = []
    while queue.stats(topic).topics[topic].groups[group].ready:
        claim = queue.take(topic, group, timeout=HANG_S)
        assert claim
        while True:
            claim.finish()
            done.append(claim.job.id)
            claim = queue.take(topic, group, timeout=0)
            if not claim:
                break
    return sorted(done)


def rows(archive: Archive, wanted: Wanted = EVERY) -> list[ArchivedJob]:
    found: list[ArchivedJob] = []
    while page := archive.rows(wanted, 500, found[-1].number if found else 0):
        found += page
    return found


def states(archive: Archive) -> dict[str, int]:
    """How many rows are in each state."""
    return dict(Counter(row.state.value for row in rows(archive)))


def archived(archive: Archive) -> list[str]:
    return sorted(row.dead_letter.id for row in rows(archive, Wanted(states=(RowState.ARCHIVED,))))


def dead_now(queue: Queue, topic: str = "t", groups: Iterable[str] = ("default",)) -> list[str]:
    return sorted(job.id for group in groups for job in queue.dead(topic, group, limit=100_000))


def balanced(queue: Queue) -> None:
    audit = queue.audit()
    assert audit.balanced, audit


def receipts(server: Server) -> list[bytes]:
    with server.client() as client:
        return [field for key in client.scan_iter("*:archive") for field in client.hkeys(key)]
