"""Tells jobs that wait for others how these have ended. The active mover runs it, for topics in which jobs wait or are
waited for; without such topics it does nothing.

The shard of a job that has ended keeps its ending until all that waited for it have ended as well, and tells them again
now and then. So whichever of the two shards loses its last writes in a failover, the news comes again. A job that waits
is looked at now and then, too: the others are asked anew, because their shards may have lost who waits for them, or
their topic was deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..config import MAX_BATCH
from ..job.flow import FLOWS
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..store.batches import parts
from ..store.flows import children
from ..store.flows.children import children_for
from ..store.jobs.links import TO_PUT_IN, UNKNOWN, Asked, Ending, Follower, News, Received, follower
from ..store.redis_store import RedisStore
from .shard_loop import ShardLoop
from .shard_timers import NEVER

_AT_ONCE = MAX_BATCH  # endings of one look
_PUT_IN_AT_ONCE = 20  # of them, those with children, which may be 1 MiB of each
_LOOKED_AT = 100  # jobs that wait, of one look
_AGAIN_MS, _AGAIN_AT_MOST_MS = 30_000, 600_000
_SOON_MS = 1_000


class _NewsFor(NamedTuple):
    """For one follower, of one job."""

    ending: Ending
    follower: Follower


class _Answers:
    """What those have answered that endings were reported to: by the field of the ending, the lines of followers that
    need not hear of it again; the endings that did not reach all; and those of jobs whose flow was cancelled, perhaps
    so long ago that it is forgotten.
    """

    def __init__(self) -> None:
        self.gone: dict[str, list[str]] = {}
        self.failed: set[str] = set()
        self.closed: set[str] = set()

    def note(self, news: _NewsFor, answer: Received) -> None:
        field, has_ended = news.ending.field, answer is Received.ENDED
        if has_ended or answer is Received.KNOWS:
            self.gone.setdefault(field, []).append(news.follower.line)
        if answer is Received.CLOSED or (has_ended and news.follower.topic == FLOWS):
            self.closed.add(field)


class _Question(NamedTuple):
    """About one of those that a job waits for. ``id``, ``nonce``: of the job that waits."""

    id: str
    nonce: str
    asked: Asked


class Endings(ShardLoop):
    """``look_at_flows``: is called with a shard of flows in which one has ended."""

    NAME = "endings"

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        look_at_jobs: Callable[[ShardKeys], None],
        look_at_flows: Callable[[ShardKeys], None],
    ) -> None:
        super().__init__(link, store, look_at_jobs)
        self._look_at_flows = look_at_flows

    def _shards(self) -> Iterable[ShardKeys]:
        topics = [name for name, one in self._topics.known.items() if one.linked]
        # A shard that is no longer used may have endings.
        return [shard for name in topics for shard in self._topics.all_shards(name)]

    async def _look(self, shard: ShardKeys) -> float:
        """Tells of what has ended in the shard, and looks at what waits there."""
        if shard.topic not in self._topics.known:
            return NEVER
        found = await arun(self._link, self._scripts.endings(shard, _AT_ONCE))
        self._time.observe(found.now_ms, time.monotonic())
        next_ms = [found.next_ms]
        to_put_in = [one for one in found.endings if _is_to_put_in(one)]
        if others := [one for one in found.endings if not _is_to_put_in(one)]:
            next_ms.append(await self._report(shard, found.now_ms, others))
        if to_put_in:
            next_ms.append(await self._put_in(shard, found.now_ms, to_put_in[:_PUT_IN_AT_ONCE]))
        if 0 <= found.look_ms <= found.now_ms:
            next_ms.append(await self._look_after(shard))
        else:
            next_ms.append(found.look_ms)
        return self._moment(min((ms for ms in next_ms if ms >= 0), default=-1), found.now_ms)

    # -- endings

    async def _put_in(self, shard: ShardKeys, now_ms: int, endings: Sequence[Ending]) -> int:
        """Puts in the children of jobs that have ended. Nobody hears of these ends before that. Returns when to look
        again: at once. What could not be put in holds up nothing else then.
        """
        done = await asyncio.gather(*(self._try_to_put_in(shard, one) for one in endings))
        args: list[str | int] = []
        for one, is_done in zip(endings, done, strict=True):
            if not is_done:
                args += (one.field, one.generation, now_ms + _SOON_MS, "")
        if args:
            await arun(self._link, self._scripts.delivered(shard, args))
        return now_ms

    async def _try_to_put_in(self, shard: ShardKeys, ending: Ending) -> bool:
        try:
            await arun(self._link, children.put_in(self._session, self._scripts, self._topics, shard, ending))
        except Exception as error:
            self._failures.pause_after(shard, error)
            return False
        return True

    async def _report(self, shard: ShardKeys, now_ms: int, endings: Sequence[Ending]) -> int:
        """Reports them to all followers, and notes which of these have ended, and when to report to the others again.
        Returns when to look again.
        """
        answers = _Answers()
        await self._report_to(answers, (_NewsFor(one, who) for one in endings for who in one.others))
        # Children start once all that wait for them know of them.
        await self._report_to(answers, self._for_children(endings, answers))
        args: list[str | int] = []
        next_ms = now_ms + _AGAIN_AT_MOST_MS
        for one in endings:
            is_repeated = one.field in answers.failed  # to all of them: what the flow answers matters to the children
            again_ms = now_ms + (_SOON_MS if is_repeated else _again_ms(one, now_ms))
            gone = () if is_repeated else answers.gone.get(one.field, ())
            args += (one.field, one.generation, again_ms, "\n".join(gone))
            next_ms = min(next_ms, again_ms)
        await arun(self._link, self._scripts.delivered(shard, args))
        # A follower that is not there may come yet: ``delivered`` then has the news sent again soon.
        return min(next_ms, now_ms + _SOON_MS) if answers.gone else next_ms

    @staticmethod
    def _for_children(endings: Iterable[Ending], answers: _Answers) -> Iterator[_NewsFor]:
        """If the flow was cancelled, its children are, too."""
        for ending in endings:
            if ending.children and ending.field not in answers.failed:
                news = ending._replace(how="cancelled") if ending.field in answers.closed else ending
                for one in ending.added:
                    yield _NewsFor(news, one)

    async def _report_to(self, answers: _Answers, news: Iterable[_NewsFor]) -> None:
        places: dict[ShardKeys, list[_NewsFor]] = {}
        for one in news:
            place = self._session.keys.shard(one.follower.topic, one.follower.shard)
            places.setdefault(place, []).append(one)
        await asyncio.gather(*(self._try_to_report(answers, place, some) for place, some in places.items()))

    async def _try_to_report(self, answers: _Answers, place: ShardKeys, news: Sequence[_NewsFor]) -> None:
        """What a node that does not answer should hear is sent again soon."""
        try:
            # What is for the same job together: a call does so much.
            for some in parts(sorted(news, key=_to), _size_of, MAX_BATCH, MAX_BATCH):
                said = [
                    News(to.id, to.nonce, to.place, one.generation, one.how, children=children_for(one, to))
                    for one, to in some
                ]
                for one, answer in zip(some, await self._deliver(place, said), strict=True):
                    answers.note(one, answer)
        except Exception as error:
            self._failures.pause_after(place, error)
            answers.failed.update(one.ending.field for one in news)

    async def _deliver(self, place: ShardKeys, news: Sequence[News]) -> Sequence[Received]:
        answers = await arun(self._link, self._scripts.deliver(place, news))
        if place.topic == FLOWS and Received.STARTS in answers:
            self._look_at_flows(place)
        return answers

    # -- jobs that wait

    async def _look_after(self, shard: ShardKeys) -> int:
        """Asks those whose ends are not known yet. Returns when to look again, by Redis's clock; -1: never."""
        found = await arun(self._link, self._scripts.look_after(shard, _LOOKED_AT))
        places: dict[ShardKeys, list[_Question]] = {}
        for id, nonce, asked in found.waiting:
            for one in asked:
                place = self._session.keys.shard(one.topic, one.shard)
                places.setdefault(place, []).append(_Question(id, nonce, one))
        await asyncio.gather(*(self._try_to_ask(shard, place, some) for place, some in places.items()))
        return found.next_ms

    async def _try_to_ask(self, shard: ShardKeys, place: ShardKeys, questions: Sequence[_Question]) -> None:
        """A node that does not answer holds up no others, and this look only once; the next look asks it again."""
        try:
            for begin in range(0, len(questions), MAX_BATCH):
                await self._ask(shard, place, questions[begin : begin + MAX_BATCH])
        except Exception as error:
            self._failures.pause_after(place, error)

    async def _ask(self, shard: ShardKeys, place: ShardKeys, questions: Sequence[_Question]) -> None:
        lines = [
            value
            for id, nonce, one in questions
            for value in (one.id, one.life, follower(shard.topic, shard.shard, one.place, nonce, id))
        ]
        replies = (await arun(self._link, self._scripts.attach(place, None, lines))) or []
        now_ms = int(self._time.now_ms())
        news = [
            News(id, nonce, one.place, max(now_ms, one.generation + 1), "lost", one.generation)
            if reply.how == UNKNOWN
            else News(id, nonce, one.place, reply.generation, reply.how, one.generation)
            for (id, nonce, one), reply in zip(questions, replies, strict=True)
            if reply.how or reply.generation or one.generation  # most often nothing has ever happened to it
        ]
        if news:
            await self._deliver(shard, news)


def _is_to_put_in(ending: Ending) -> bool:
    """Whether its children are. A job that is in the archive may come back, and end anew."""
    return ending.children == TO_PUT_IN and ending.how != "archived"


def _again_ms(ending: Ending, now_ms: int) -> int:
    """In how long to tell again, if it has not ended: the longer ago the ending, the later."""
    return min(max(_AGAIN_MS, now_ms - ending.generation), _AGAIN_AT_MOST_MS)


def _to(news: _NewsFor) -> tuple[str, str]:
    return news.follower.id, news.follower.nonce


def _size_of(news: _NewsFor) -> int:
    """How many lines a call gets with it."""
    return 1 if news.follower.is_child else 1 + len(news.ending.added)
