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
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..config import MAX_BATCH
from ..keys import ShardKeys
from ..link.session import arun
from ..store.batches import parts
from ..store.flows import children
from ..store.flows.children import children_for
from ..store.jobs.links import TO_PUT_IN, UNKNOWN, Asked, Ending, Follower, News, Received, follower
from .shard_loop import ShardLoop
from .shard_timers import NEVER

_AT_ONCE = MAX_BATCH  # endings of one look
_LOOKED_AT = 100  # jobs that wait, of one look
_AGAIN_MS, _AGAIN_AT_MOST_MS = 30_000, 600_000
_SOON_MS = 1_000


class _NewsFor(NamedTuple):
    """For one follower, of one job."""

    ending: Ending
    follower: Follower


class _Told(NamedTuple):
    """The lines of followers that have ended, by ending; the endings that did not reach all; and those of jobs whose
    flow was cancelled, so that their children must not start.
    """

    gone: dict[str, list[str]]
    failed: set[str]
    closed: set[str]


class _Question(NamedTuple):
    """About one of those that a job waits for. ``id``, ``nonce``: of the job that waits."""

    id: str
    nonce: str
    asked: Asked


class Endings(ShardLoop):
    NAME = "endings"

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
        if found.endings:
            next_ms.append(await self._deliver(shard, found.now_ms, found.endings))
        if 0 <= found.look_ms <= found.now_ms:
            next_ms.append(await self._look_after(shard))
        else:
            next_ms.append(found.look_ms)
        return self._moment(min((ms for ms in next_ms if ms >= 0), default=-1), found.now_ms)

    # -- endings

    async def _deliver(self, shard: ShardKeys, now_ms: int, endings: Sequence[Ending]) -> int:
        """Tells all followers, and notes which of them have ended, and when to tell the others again. Returns when to
        look again.
        """
        to_put_in = [one for one in endings if one.children == TO_PUT_IN]
        if to_put_in:
            again_ms = await self._put_in(shard, now_ms, to_put_in)
            others = [one for one in endings if one.children != TO_PUT_IN]
            return min(again_ms, await self._deliver(shard, now_ms, others)) if others else again_ms
        told = await self._tell_all(_NewsFor(one, who) for one in endings for who in one.followers if not who.is_child)
        # Children start once all that wait for them know of them.
        started = await self._tell_all(
            _NewsFor(one._replace(how="cancelled") if one.field in told.closed else one, who)
            for one in endings
            if one.children and one.field not in told.failed
            for who in one.followers
            if who.is_child
        )
        gone, failed = told.gone, told.failed | started.failed
        for field, lines in started.gone.items():
            gone.setdefault(field, []).extend(lines)
        again = [now_ms + (_SOON_MS if one.field in failed else _again_ms(one, now_ms)) for one in endings]
        args = [
            value
            for one, at_ms in zip(endings, again, strict=True)
            for value in (one.field, one.generation, at_ms, "\n".join(gone.get(one.field, [])))
        ]
        await arun(self._link, self._scripts.delivered(shard, args))
        # A follower that is not there may come yet: ``delivered`` then has the news sent again soon.
        return min([now_ms + _SOON_MS, *again] if gone else again)

    async def _put_in(self, shard: ShardKeys, now_ms: int, endings: Sequence[Ending]) -> int:
        """Puts in the children of jobs that have ended. Nobody hears of these ends before that. Returns when to look
        again.
        """
        again_ms = now_ms
        for one in endings:
            try:
                await arun(self._link, children.put_in(self._session, self._scripts, self._topics, shard, one))
            except Exception as error:
                self._failures.pause_after(shard, error)
                again_ms = now_ms + _SOON_MS
        return again_ms

    async def _tell_all(self, news: Iterable[_NewsFor]) -> _Told:
        places: dict[ShardKeys, list[_NewsFor]] = {}
        for one in news:
            place = self._session.keys.shard(one.follower.topic, one.follower.shard)
            places.setdefault(place, []).append(one)
        told = _Told({}, set(), set())
        replies = await asyncio.gather(
            *(self._deliver_to(place, some) for place, some in places.items()), return_exceptions=True
        )
        for (place, some), lines in zip(places.items(), replies, strict=True):
            if isinstance(lines, BaseException):
                if not isinstance(lines, Exception):
                    raise lines
                self._failures.pause_after(place, lines)
                told.failed.update(news.ending.field for news in some)
                continue
            for (ending, who), now in lines:
                if now is Received.ENDED:
                    told.gone.setdefault(ending.field, []).append(who.line)
                elif now is Received.CLOSED:
                    told.closed.add(ending.field)
        return told

    async def _deliver_to(self, place: ShardKeys, news: Sequence[_NewsFor]) -> list[tuple[_NewsFor, Received]]:
        """Returns what each has answered."""
        answers: list[tuple[_NewsFor, Received]] = []
        # What is for the same job together: a call does so much.
        news = sorted(news, key=lambda one: (one.follower.id, one.follower.nonce))
        said = [
            News(one.id, one.nonce, one.place, ending.generation, ending.how, children=children_for(ending, one))
            for ending, one in news
        ]
        for some in parts(range(len(news)), lambda i: 1 + len(said[i].children), MAX_BATCH, MAX_BATCH):
            replies = await arun(self._link, self._scripts.deliver(place, [said[i] for i in some]))
            answers += [(news[i], now) for i, now in zip(some, replies, strict=True)]
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
        ]
        await arun(self._link, self._scripts.deliver(shard, news))


def _again_ms(ending: Ending, now_ms: int) -> int:
    """In how long to tell again, if it has not ended: the longer ago the ending, the later."""
    return min(max(_AGAIN_MS, now_ms - ending.generation), _AGAIN_AT_MOST_MS)
