"""Jobs that wait for others, and how these are by_job to have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...config import TopicSettings
from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..calling import KeysAndArgs, ScriptCalls, Spread, has_not_begun
from ..jobs.links import (
    BETWEEN,
    Attached,
    Endings,
    LookedAfter,
    News,
    Received,
    attached_in,
    endings_in,
    looked_after_in,
    received,
)
from ..replies import Enqueued, enqueued_in

_AT_ONCE = 20  # calls of attach, which may notify 500 jobs each


class NewInFlow(NamedTuple):
    """A new job of a flow: its id, the rest of its record, and what it waits for. ``own``: the flow's own job, which
    waits for it (links.follower).
    """

    id: str
    rest: bytes
    own: str
    dependencies: Sequence[str]


class LinkScripts(ScriptCalls):
    def attach(self, k: ShardKeys, topic: TopicSettings | None, followers: Sequence[str]) -> Op[list[Attached] | None]:
        """``followers``: id and life of the job that is waited for, and who waits for it (``links.follower``), for
        each. ``topic`` None: the caller knows where the jobs are. None: its settings are out of date.
        """
        found: list[Attached] = []
        while len(found) * 3 < len(followers):  # a call may leave some to the next one
            rest = followers[len(found) * 3 :]
            more = attached_in((yield from self._run("attach", *self._attaching(k, topic, rest))))
            if more is None:
                return None
            found += more
        return found

    def attach_each(
        self, calls: Sequence[tuple[ShardKeys, TopicSettings | None, Sequence[str]]]
    ) -> Op[list[list[Attached] | None]]:
        """The replies of several calls of ``attach``, in their order. Some are sent together."""
        if len(calls) == 1:
            return [(yield from self.attach(*calls[0]))]
        found: list[list[Attached] | None] = []
        yield from self.check_rights((k.jobs for k, *_ in calls))
        commands = [self._commands("attach", [self._attaching(*call)])[0] for call in calls]
        replies: list[Any] = []
        for begin in range(0, len(commands), _AT_ONCE):  # each with a deadline of its own
            replies += yield from self._session.call(commands[begin : begin + _AT_ONCE])
        for call, reply in zip(calls, replies, strict=True):
            again = has_not_begun(reply)  # as its node does not know the script yet
            known = [] if again else attached_in(self._checked(reply))
            k, topic, followers = call
            rest = None if known is None else (yield from self.attach(k, topic, followers[len(known) * 3 :]))
            found.append(None if known is None or rest is None else known + rest)
        return found

    def _attaching(self, k: ShardKeys, topic: TopicSettings | None, followers: Sequence[str]) -> KeysAndArgs:
        return keys_of("attach", k), (self._now(), topic.layout.text if topic else "", *followers)

    def enqueue_after(
        self, k: ShardKeys, spread: Spread, how: str, job: Sequence[Any], dependencies: Sequence[str]
    ) -> Op[Enqueued]:
        """``how``: keep or replace the job that has the id; look: keep it, and put nothing in if there is none.
        ``job``: its id, and the rest of its record.
        """
        args = (self._now(), spread, self._history, how, *job, "", BETWEEN.join(dependencies))
        return enqueued_in((yield from self._run("enqueue_after", keys_of("enqueue_after", k), args)))

    def enqueue_after_many(
        self, k: ShardKeys, spread: Spread, jobs: Sequence[NewInFlow], how: str = "keep"
    ) -> Op[Enqueued]:
        """The same for jobs of a flow, which are kept if they are there. ``how`` "once": those that have ended are not
        put in again. If the reply is not current, those from ``looked`` on were not put in.
        """
        now_ms, taken, looked = 0, dict[int, bytes](), 0
        while looked < len(jobs):
            args: list[Any] = [self._now(), spread, self._history, how]
            for job in jobs[looked:]:
                args += [job.id, job.rest, job.own, BETWEEN.join(job.dependencies)]
            reply = enqueued_in((yield from self._run("enqueue_after", keys_of("enqueue_after", k), args)))
            if not reply.current:
                return Enqueued(False, now_ms, taken, looked, 0)
            taken |= {looked + i: record for i, record in reply.taken.items()}
            now_ms, looked = reply.now_ms, looked + reply.looked
        return Enqueued(True, now_ms, taken, looked, 0)

    def deliver(self, k: ShardKeys, news: Sequence[News]) -> Op[list[Received]]:
        """What became of each piece of news."""
        by_job: dict[tuple[str, str], list[int]] = {}
        for i, one in enumerate(news):
            by_job.setdefault((one.id, one.nonce), []).append(i)
        found, left = [Received.ENDED] * len(news), [*by_job.items()]
        while left:  # a call may leave some to the next one
            args = [self._now(), self._history]
            for (id, nonce), some in left:
                children = dict.fromkeys(line for i in some for line in news[i].children)
                args += (id, nonce, "".join([news[i].text for i in some]), "\n".join(children))
            codes = yield from self._run("deliver", keys_of("deliver", k), args)
            for (_, some), answer in zip(left, map(Received, codes), strict=False):
                for i in some:
                    found[i] = received(answer, news[i].how)
            left = left[len(codes) :]
        return found

    def link_children(self, k: ShardKeys, id: str, life: str, lines: Sequence[str]) -> Op[bool]:
        """``lines``: of each child, what its line begins with (links.before_text), and the rest of it (links.follower).
        False: they were linked before.
        """
        args = (self._now(), id, life, *lines)
        reply: int = yield from self._run("link_children", keys_of("link_children", k), args)
        return reply == 1

    def look_after(self, k: ShardKeys, limit: int) -> Op[LookedAfter]:
        keys = keys_of("look_after", k)
        return looked_after_in((yield from self._run("look_after", keys, (self._now(), self._history, limit))))

    def endings(self, k: ShardKeys, limit: int) -> Op[Endings]:
        return endings_in((yield from self._run("endings", keys_of("endings", k), (self._now(), limit))))

    def delivered(self, k: ShardKeys, delivered: Sequence[Any]) -> Op[int]:
        """``delivered``: field, generation, when to do so again, and the lines of followers that have ended."""
        reply: int = yield from self._run("delivered", keys_of("delivered", k), (self._now(), *delivered))
        return reply
