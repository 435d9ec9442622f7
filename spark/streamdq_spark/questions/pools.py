"""Which queues share their workers, and so compete for them."""

from __future__ import annotations

from collections.abc import Iterable

Queue = tuple[str, str | None]
"""A topic and a consumer group."""


def pool_numbers(worked: Iterable[tuple[str, str | None, object]]) -> dict[Queue, int]:
    """The number of each queue's pool, from who worked on which (topic, group, worker): queues that a worker worked on
    together are in one. They are numbered by the first topic and group of each; none is before all groups.
    """
    leads: dict[object, object] = {}

    def head(one: object) -> object:
        while (next_one := leads.setdefault(one, one)) != one:
            leads[one] = leads[next_one]
            one = next_one
        return one

    queues = set()
    for topic, group, worker in worked:
        queues.add((topic, group))
        leads[head((topic, group))] = head((None, None, worker))
    ordered = sorted(queues, key=lambda queue: (queue[0], queue[1] is not None, queue[1] or ""))
    heads = list(dict.fromkeys(head(queue) for queue in ordered))
    return {queue: heads.index(head(queue)) for queue in ordered}
