"""One erasure in Redis and beside it.

What leads to the rest goes last: first what is kept of ended jobs, in Redis and in dumps; then rows of the archive and
the outbox; at last the jobs. So a run that was killed, or could not reach a place, is repeated and finds what it had
left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from ..errors import ArchiveError, FolderError, HistoryUnreadable, OutboxError, StreamdqError
from ..operations.erase.erase import Erasure
from ..operations.erase.report import Erased
from ..operations.erase.wanted import wanted_of
from ..operations.find.conditions import Where
from ..queue import Queue, carry_out, store_of
from ..times.durations import Duration, to_ms
from .places import InArchive, InDump, InOutbox, Storage

_REFUSALS = (ArchiveError, OutboxError, FolderError, HistoryUnreadable)
_KEPT = "they stay, as only their bodies lead to what is in a dump that could not be erased: run this again"


def erase(
    queue: Queue,
    topic: str | None = None,
    *,
    key: str | None = None,
    where: Where | None = None,
    archive: str | None = None,
    outbox: str | None = None,
    dumps: Sequence[str] = (),
    schedules: bool = False,
    abort: bool = False,
    wait: Duration = 0,
    dry_run: bool = False,
) -> Erased:
    """Like ``Queue.erase``, and in an ``archive`` and an ``outbox`` (URLs of their databases) and in ``dumps`` (folders
    or URLs) as well. Safe to repeat: a run that was killed is completed by the next one.

    A place that refuses is reported. If a dump does, jobs and rows that were found by their bodies stay, as only they
    lead to its rows.

    Raises:
        InvalidInput, MissingExtra, UnknownTopic
        ServerUnavailable: run it again.
    """
    wait_s = to_ms(wait, "wait") / 1000
    store, run = store_of(queue), partial(carry_out, queue)
    erasure = Erasure(store, wanted_of(key, where), topic, schedules=schedules, abort=abort, dry_run=dry_run)
    makers = [
        (name, partial(kind, erasure, queue, url))
        for name, kind, url in (("outbox", InOutbox, outbox), ("archive", InArchive, archive))
        if url is not None
    ]
    dumped = [(f"dump {url}", partial(InDump, erasure, url)) for url in dumps]
    with ExitStack() as opened:
        run(erasure.look())
        # Those that have bodies first: they know jobs of which dumps have rows.
        with_bodies = list(_looked_at(erasure, makers, opened))
        in_dumps = list(_looked_at(erasure, dumped, opened))
        run(erasure.erase_traces())
        if not dry_run:
            erased = [_is_erased(erasure, place) for place in in_dumps]
            _erase_sources(erasure, with_bodies, may=erasure.wanted.is_of_rows or erased == [True] * len(dumps))
        run(erasure.finish(wait_s))
    return erasure.reported()


def _erase_sources(erasure: Erasure, places: Sequence[Storage], *, may: bool) -> None:
    """Erases what leads to the rest, if the rest is gone."""
    for place in places:
        if may:
            _is_erased(erasure, place)
        else:
            erasure.report.leave(place.name, erasure.topic or "", _KEPT, count=place.found)
    if not may:
        erasure.keep_jobs(_KEPT)


def _looked_at(
    erasure: Erasure, makers: Iterable[tuple[str, Callable[[], Storage]]], opened: ExitStack
) -> Iterator[Storage]:
    """The places that could be looked at."""
    for name, make in makers:
        try:
            place = make()
            opened.callback(place.close)
            place.look()
        except _REFUSALS as error:
            _report(erasure, name, error)
        else:
            yield place


def _is_erased(erasure: Erasure, place: Storage) -> bool:
    """Erases what was found there. Returns False if the place refuses."""
    try:
        place.erase()
    except _REFUSALS as error:
        _report(erasure, place.name, error)
        return False
    return True


def _report(erasure: Erasure, name: str, refusal: StreamdqError) -> None:
    erasure.report.leave(name, erasure.topic or "", f"{type(refusal).__name__}: {refusal}", count=1)
