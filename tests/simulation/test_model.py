"""The model notices each broken promise: histories in which one is, beside the same without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.model import Broken, Call, Model
from tests.simulation.transitions import STEPS

NOW = 1_800_000_000_000


class Story:
    """Calls as Redis would have carried them out, one by one."""

    def __init__(self) -> None:
        self.model = Model(STEPS)
        self.now = NOW
        self.shard = 0
        self.configure()

    def call(self, name: str, reply: Any, *args: bytes) -> None:
        keys = [f"ns:{{t:{self.shard}}}:jobs"]
        self.model.applied(Call(len(self.model.calls) + 1, self.now, name, keys, args, reply))

    def enqueue(self, serial: int = 1, when: bytes = b"+0", id: bytes = b"a", expire: bytes = b"") -> None:
        body = b'\n%b\nnonc\n\n\n{"n":%d}' % (expire, serial)
        self.call("enqueue", [1, self.now, 1], b"", b"1", b"9", id, when, body)

    def enqueue_unique(
        self, serial: int, rule: bytes, how: bytes = b"keep", when: bytes = b"+0", due_ms: int | None = None
    ) -> None:
        """``due_ms``: it is postponed to that time."""
        rest = b'\n\nnonc\n\n\n{"n":%d}' % serial
        taken = [] if due_ms is None else [1, b"000000000001%d\n%d\n" % (due_ms, NOW) + rest]
        self.call("enqueue_unique", [1, self.now, 1, *taken], b"", b"1", b"9", b"9", how, b"", b"a", when, rest, rule)

    def claim(
        self, serial: int = 1, consumer: bytes = b"c1", claim: bytes = b"1-0", id: bytes = b"a", group: bytes = b"g",
        expired: int = 0,
    ) -> None:  # fmt: skip
        record = b'000000000001%d\n%d\n\n\nnonc\n\n\n{"n":%d}' % (self.now, self.now, serial)
        reply = [1, self.now, 1000, 0, [claim], [id], [record], expired, b"1", 0, 0]
        self.call("claim", reply, b"", group, consumer, b"1", b"1000", b"0", b"1")

    def schedule(self, due_ms: int, time: bytes = b"T1") -> None:
        occurrence = b"%d\x1f%d\x1fs@%b\x1f%b" % (due_ms, due_ms, time, time)
        lines = (b"active", b"allow", b"1", b"0", b"0", b"", b"", b"", b"0:0:0", occurrence, b"1", b" {}")
        job = b'\n\n\n\n\n{"n":"s {due}"}'
        self.call("schedule", 1, b"", b"1", b"s", b"0", b"%d" % due_ms, b"0", b"\n".join((*lines, job)))

    def fire(self, *times: bytes) -> None:
        reply = [1, self.now, -1, 0, [b"s@" + time for time in times], []]
        self.call("fire", reply, b"", b"1", b"500", b"30000", b"1000", b"100")

    def end(
        self, name: str, *more: bytes, claim: tuple[bytes, bytes] = (b"1-0", b""), consumer: bytes = b"c1",
        refused: bool = False,
    ) -> None:  # fmt: skip
        reply = [self.now, 1] if refused else [self.now]
        kept, failure = ((b"5000", b"0"), (b"",)) if name in ("retry", "bury") else ((), ())
        self.call(name, reply, b"", b"g", b"0", b"1", consumer, *kept, *claim, b"a", b"", *more, *failure)

    def start(self, serial: int | str = 1, attempt: int = 1, consumer: str = "c1") -> None:
        self.model.started(serial, attempt, "g", consumer)

    def bury(self) -> None:
        self.claim()
        self.end("bury", b"buried", b"no")

    def archive(self, receipt: bytes = b"taken") -> None:
        self.call("archive", [1], b"", b"g", b"a", receipt, b"%d" % self.now, b"000000000001", b"1")

    def restore(self, group: bytes = b"g", receipt: bytes = b"given") -> None:
        rest = b'%d\n\n\nnonc\n\n\n{"n":1}' % NOW
        self.call("restore", [1, 1], b"", group, b"0", b"1", b"", b"a", receipt, b"1", b"%d" % NOW, rest)

    def configure(self, groups: bytes = b"g", *fields: bytes) -> None:
        self.call("configure_shard", [1, groups, b"", 1, b"1", 0], b"1", b"1", groups, b"", b"", *fields)

    def move_to(self, shard: int) -> None:
        """What follows is in this shard."""
        self.shard = shard
        if ("t", shard) not in self.model.groups:
            self.configure()

    def rest(self, *stored: str, archived: tuple[int, ...] = (), counted: dict[str, int] | None = None) -> None:
        counts = {("t", 0): counted} if counted is not None else {}
        self.model.at_rest(["g"], [(("t", 0), id) for id in stored], counts, archived)


def test_a_schedule_without_fault() -> None:
    story = Story()
    story.schedule(NOW + 1000)
    story.now += 1000
    story.fire(b"T1")
    story.schedule(NOW + 2000, b"T2")
    story.now += 1000
    story.fire(b"T2")
    assert set(story.model.jobs) == {"s T1", "s T2"}


def test_a_life_without_fault() -> None:
    story = Story()
    story.enqueue()
    story.model.acknowledged(1)
    story.claim()
    story.start()
    story.end("retry", b"1000", b"1", b"no")
    story.now += 1000
    story.claim(claim=b"1-0|2-0|2|1|0|")
    story.start(attempt=2)
    story.end("finish", claim=(b"1-0", b"2-0"))
    story.model.ended(1, "g", "c1", "finish")
    story.rest(counted={"retried:g": 1, "done:g": 1})


def test_an_archived_job_comes_back() -> None:
    story = Story()
    story.enqueue()
    story.bury()
    story.archive()
    story.rest(archived=(1,))
    story.restore()
    story.claim(claim=b"-|2-0|2|0|0|")
    story.start(attempt=2)
    story.end("finish", claim=(b"-", b"2-0"))
    story.rest(counted={"done:g": 1})


def test_a_restore_that_comes_late_brings_a_job_back_again() -> None:
    story = Story()
    story.enqueue()
    story.bury()
    story.archive()
    for entry in (b"2-0", b"3-0"):
        story.restore()
        story.restore()
        story.claim(claim=b"-|%b|2|0|0|" % entry)
        story.end("finish", claim=(b"-", entry))
        story.call("HDEL", 1, b"streamdq:{t:0}:archive", b"given")
    story.rest(counted={"done:g": 2})


def test_an_archived_job_comes_back_to_another_shard_and_again_to_the_first() -> None:
    """The number of shards has changed meanwhile, and changes back."""
    story = Story()
    story.enqueue()
    story.bury()
    story.archive()
    story.move_to(1)
    story.restore()
    story.call("HDEL", 0, b"streamdq:{t:0}:archive", b"given")  # it is not there
    story.restore()
    story.claim(claim=b"-|2-0|2|0|0|")
    story.start(attempt=2)
    story.end("bury", b"buried", b"no", claim=(b"-", b"2-0"))
    story.archive(b"taken again")
    story.rest(archived=(1,))
    story.move_to(0)
    story.restore(receipt=b"given again")
    story.claim(claim=b"-|3-0|2|0|0|")
    story.start(attempt=2)
    story.end("finish", claim=(b"-", b"3-0"))
    story.rest(counted={"done:g": 1})


def test_a_call_that_is_repeated_when_its_job_has_ended_puts_it_in_another_shard() -> None:
    story = Story()
    story.enqueue()
    story.claim()
    story.end("finish")
    story.move_to(1)
    story.enqueue()
    story.claim()
    story.end("finish")
    story.rest()


def test_unique_jobs_without_fault() -> None:
    story = Story()
    for serial, rule in enumerate((b"1000|||", b"1000|||", b"|2|1000|", b"|2|1000|"), start=1):
        story.enqueue_unique(serial, rule)
        story.claim(serial)
        story.end("finish")
        story.now += 1000 if serial < 3 else 0
    story.now += 1000
    story.enqueue_unique(5, b"|||1000", b"postpone", b"+1000")
    story.now += 500
    story.enqueue_unique(6, b"|||1000", b"postpone", b"+1000", due_ms=story.now + 1000)
    story.model.acknowledged(6)
    story.now += 500
    story.enqueue_unique(7, b"|||1000", b"postpone", b"+5000", due_ms=story.now + 1000)
    story.now += 1000
    story.claim(7)
    story.start(7)
    story.end("finish")
    story.rest()


def given_within_its_time(story: Story) -> None:
    story.enqueue_unique(1, b"1000|||")
    story.claim()
    story.end("finish")
    story.now += 999
    story.enqueue_unique(2, b"|||")


def given_too_soon_after_its_end(story: Story) -> None:
    story.enqueue_unique(1, b"f1000|||")
    story.now += 5000
    story.claim()
    story.end("finish")
    story.now += 999
    story.enqueue_unique(2, b"|||")


def given_beyond_its_rate(story: Story) -> None:
    for serial in (1, 2, 3):
        story.enqueue_unique(serial, b"|2|1000|")
        story.claim(serial)
        story.end("finish")


def postponed_too_far(story: Story) -> None:
    story.enqueue_unique(1, b"|||1000", b"postpone", b"+1000")
    story.enqueue_unique(2, b"|||1000", b"postpone", b"+5000", due_ms=NOW + 5000)


def postponed_to_another_time(story: Story) -> None:
    story.enqueue_unique(1, b"|||", b"postpone", b"+1000")
    story.enqueue_unique(2, b"|||", b"postpone", b"+5000", due_ms=NOW + 4000)


def postponed_while_it_ran(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.enqueue_unique(2, b"|||", b"postpone", due_ms=NOW)


def claimed_with_its_old_body(story: Story) -> None:
    story.enqueue()
    story.enqueue_unique(2, b"|||", b"postpone", due_ms=NOW)
    story.claim(1)


def never_put_in(story: Story) -> None:
    story.model.acknowledged(1)


def never_done(story: Story) -> None:
    story.enqueue()
    story.rest("a")


def left_behind(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.rest("a")


def claimed_early(story: Story) -> None:
    story.enqueue(when=b"+1000")
    story.claim()


def retried_early(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("retry", b"1000", b"1", b"no")
    story.now += 999
    story.claim(claim=b"1-0|2-0|2|1|0|")


def claimed_twice(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|0|")


def claimed_for_the_time_of_another_group(story: Story) -> None:
    story.configure(b"g,h", b"ttr", b"5000", b"ttr:g", b"2000", b"ttr:h", b"1000")
    story.enqueue()
    story.claim()


def claimed_when_done(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.claim(claim=b"1-0|2-0|2|0|0|")


def claimed_when_cancelled(story: Story) -> None:
    story.enqueue()
    story.call("cancel", 1, b"", b"a", b"0", b"1", b"g")
    story.claim()


def started_when_cancelled(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("release")
    story.call("cancel", 1, b"", b"a", b"0", b"1", b"g")
    story.start()


def started_when_taken_over(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.now += 1000
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|1|")
    story.start(consumer="c1")


def started_as_another_attempt(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.start(attempt=2)


def finished_by_who_lost_it(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.now += 1000
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|1|")
    story.end("finish")


def finished_by_another_with_the_same_entry(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish", consumer=b"c2")


def cancelled_while_it_ran(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.call("cancel", 1, b"", b"a", b"0", b"1", b"g")


def not_found_by_cancel(story: Story) -> None:
    story.enqueue()
    story.call("cancel", 0, b"", b"a", b"0", b"1", b"g")


def kicked_without_being_dead(story: Story) -> None:
    story.enqueue()
    story.call("kick", 1, b"", b"g", b"0", b"0", b"a")


def put_over_another(story: Story) -> None:
    story.enqueue(1)
    story.enqueue(2)


def put_in_again(story: Story) -> None:
    story.enqueue()
    story.call("replace", [1, story.now, 1], b"", b"1", b"0", b"9", b"a", b"+0", b'\n\nnonc\n\n\n{"n":1}')


def counted_though_drained(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.call("remove_consumer", 1, b"", b"g", b"c1", b"100")
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|0|")
    story.start(attempt=2, consumer="c2")


def claimed_too_late(story: Story) -> None:
    story.enqueue(expire=b"100")
    story.now += 102
    story.claim()


def expired_too_early(story: Story) -> None:
    story.enqueue(expire=b"100")
    story.now += 99
    story.claim(claim=b"", expired=1)


def claimed_when_expired(story: Story) -> None:
    story.enqueue(expire=b"100")
    story.now += 101
    story.claim(claim=b"", expired=1)
    story.claim()


def buried_as_lost_too_early(story: Story) -> None:
    story.model.deliveries_at_least = 1
    story.enqueue()
    story.claim()
    story.end("bury", b"crashed", b"lost")


def started_though_lost_too_often(story: Story) -> None:
    story.model.deliveries_at_most = 1
    story.enqueue()
    for attempt in range(1, 5):
        story.claim(consumer=b"c%d" % attempt, claim=b"1-0|%d-0|%d|0|0|" % (attempt, attempt))
        story.start(attempt=attempt, consumer=f"c{attempt}")
        story.now += 1000


def ended_for_the_client_alone(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish", refused=True)
    story.model.ended(1, "g", "c1", "finish")


def miscounted(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.rest(counted={"done:g": 2})


def dropped_with_an_open_job(story: Story) -> None:
    story.enqueue()
    story.call("drop_shard", 1, b"2", b"0")


def archived_without_being_dead(story: Story) -> None:
    story.enqueue()
    story.archive()


def archived_nowhere(story: Story) -> None:
    story.enqueue()
    story.bury()
    story.archive()
    story.rest()


def brought_back_when_done(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.restore()


def brought_back_twice(story: Story) -> None:
    story.enqueue()
    story.bury()
    story.archive()
    story.restore()
    story.claim(claim=b"-|2-0|2|0|0|")
    story.end("finish", claim=(b"-", b"2-0"))
    story.restore()
    story.claim(claim=b"-|3-0|2|0|0|")


def archived_again_nowhere(story: Story) -> None:
    story.enqueue()
    story.bury()
    story.archive()
    story.move_to(1)
    story.restore()
    story.claim(claim=b"-|2-0|2|0|0|")
    story.end("bury", b"buried", b"no", claim=(b"-", b"2-0"))
    story.archive(b"taken again")
    story.rest()


def brought_back_to_another_shard_when_done(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.move_to(1)
    story.restore()


def brought_back_to_two_shards(story: Story) -> None:
    story.enqueue()
    story.bury()
    story.archive()
    story.restore()
    story.claim(claim=b"-|2-0|2|0|0|")
    story.end("finish", claim=(b"-", b"2-0"))
    story.move_to(1)
    story.restore()


def put_in_another_shard_when_open(story: Story) -> None:
    story.enqueue()
    story.move_to(1)
    story.enqueue()


def brought_back_for_others(story: Story) -> None:
    story.configure(b"g,h")
    story.enqueue()
    story.claim(group=b"h")
    story.call("finish", [story.now], b"", b"h", b"0", b"1", b"c1", b"1-0", b"", b"a", b"")
    story.bury()
    story.archive()
    story.restore()
    story.claim(claim=b"-|2-0|2|0|0|", group=b"h")


def too_many_at_once(story: Story) -> None:
    story.model.judges_rates = True
    story.configure(b"g", b"rate", b"5")
    for _ in range(3):
        story.call("move", [2, story.now, -1, 0], b"", b"2", b"g", b"1")
        story.now += 300


def resharded_with_a_job_that_is_not_at_home(story: Story) -> None:
    story.enqueue()
    story.call("configure_shard", [1, b"g", b"", 2, b"4", 0], b"2", b"4<@1", b"g", b"", b"")


def fired_early(story: Story) -> None:
    story.schedule(NOW + 1000)
    story.now += 899
    story.fire(b"T1")


def fired_again(story: Story) -> None:
    story.schedule(NOW)
    story.fire(b"T1")
    story.fire(b"T1")


FAULTS = [
    fired_early, fired_again,
    given_within_its_time, given_too_soon_after_its_end,
    given_beyond_its_rate, postponed_too_far, postponed_to_another_time, postponed_while_it_ran,
    claimed_with_its_old_body,
    never_put_in, never_done, left_behind, claimed_early, retried_early, claimed_twice, claimed_when_done,
    claimed_for_the_time_of_another_group, claimed_when_cancelled, started_when_cancelled, started_when_taken_over,
    started_as_another_attempt, finished_by_who_lost_it, finished_by_another_with_the_same_entry,
    cancelled_while_it_ran, not_found_by_cancel, kicked_without_being_dead, put_over_another, put_in_again,
    counted_though_drained, claimed_too_late, expired_too_early, claimed_when_expired, buried_as_lost_too_early,
    started_though_lost_too_often, ended_for_the_client_alone, miscounted, dropped_with_an_open_job,
    archived_without_being_dead, archived_nowhere, brought_back_when_done, brought_back_twice, archived_again_nowhere,
    brought_back_to_another_shard_when_done, brought_back_to_two_shards, put_in_another_shard_when_open,
    brought_back_for_others, too_many_at_once, resharded_with_a_job_that_is_not_at_home,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_promise_is_noticed(fault: Callable[[Story], None]) -> None:
    with pytest.raises(Broken):
        fault(Story())


def test_what_redis_lost_is_asked_of_nobody() -> None:
    """A failover takes the last calls back; the holder of a claim may not know yet."""
    story = Story()
    story.enqueue()
    kept = len(story.model.calls)
    story.claim()
    story.enqueue(2, id=b"b")
    story.model.acknowledged(2)
    story.model.forget(kept)
    story.start()
    story.claim(consumer=b"c2")
    story.end("finish", consumer=b"c2")
    story.rest()


# -- aborts


def abort(story: Story, status: int, *reported: bytes, group: bytes = b"") -> None:
    story.call("abort", [status, *reported], b"", b"a", b"9", b"1", b"g", group)


def aborted(story: Story, name: str, *more: bytes) -> None:
    """The claim is ended, and its holder learns that its job was aborted."""
    kept = (b"5000", b"0") if name in ("retry", "bury") else ()
    rest = {"retry": (b"0", b"1", b"no", b""), "bury": (b"buried", b"no", b"")}.get(name, more)
    story.call(name, [story.now, -1], b"", b"g", b"0", b"1", b"c1", *kept, b"1-0", b"", b"a", b"", *rest)


def begun() -> Story:
    story = Story()
    story.enqueue()
    story.claim()
    story.start()
    return story


@pytest.mark.parametrize("name", ["finish", "retry", "bury", "release"])
def test_an_aborted_job_is_cancelled_however_its_attempt_ends(name: str) -> None:
    story = begun()
    abort(story, 2, b"c1", b"1-0", b"")
    aborted(story, name)
    story.rest()


def test_an_aborted_job_is_cancelled_with_its_consumer_unseen() -> None:
    story = begun()
    abort(story, 2, b"c1", b"1-0", b"")
    story.now += 5000
    story.rest()


def test_an_aborted_job_that_is_done_all_the_same() -> None:
    story = begun()
    abort(story, 2, b"c1", b"1-0", b"")
    with pytest.raises(Broken, match="though it was aborted"):
        story.end("finish")


def test_an_aborted_job_that_is_claimed_again() -> None:
    story = begun()
    abort(story, 2, b"c1", b"1-0", b"")
    story.now += 5000
    with pytest.raises(Broken, match="where it is aborting"):
        story.claim(consumer=b"c2", claim=b"-|2-0|2|0|0|")


def test_a_job_that_is_cancelled_by_an_abort_and_claimed() -> None:
    story = Story()
    story.enqueue()
    abort(story, 1)
    with pytest.raises(Broken, match="cancelled"):
        story.claim()


def test_an_abort_that_does_not_notice_who_runs_the_job() -> None:
    story = begun()
    with pytest.raises(Broken, match="was not told"):
        abort(story, 1)


def test_an_abort_that_does_not_find_an_open_job() -> None:
    story = Story()
    story.enqueue()
    with pytest.raises(Broken, match="abort did not find it"):
        abort(story, 0)


def test_an_end_that_is_refused_as_aborted_though_nobody_aborted_it() -> None:
    story = begun()
    with pytest.raises(Broken, match="told of an abort"):
        aborted(story, "finish")


# -- results


class Kept(Story):
    """A topic that keeps results for a minute."""

    def __init__(self) -> None:
        super().__init__()
        self.configure(b"g", b"results", b"g=60000")

    def done(self, serial: int = 1, id: bytes = b"a", by: bytes = b"c1", whose: int | None = None) -> bytes:
        """It has ended; what Redis keeps of that."""
        self.enqueue(serial, id=id)
        self.claim(serial, id=id, consumer=by)
        payload = b'{"n":%d,"group":"g","by":"%b"}' % (whose or serial, by)
        self.call("finish", [self.now], b"", b"g", b"0", b"1", by, b"1-0", b"", id, b"", b"done|" + payload, b"results")
        return b"%d|done|" % self.now + payload

    def read(self, value: bytes | None, id: bytes = b"a") -> None:
        self.call("GET", value, b"ns:{t:0}:result:g:" + id)

    def returned(self, outcome: str, value: Any = None, since: int = 0) -> None:
        self.model.results.returned(self.model, "t", "a", "g", since, outcome, value)


def value_of(serial: int) -> dict[str, Any]:
    return {"n": serial, "group": "g", "by": "c1"}


def test_results_without_fault() -> None:
    story = Kept()
    kept = story.done()
    story.read(kept)
    story.returned("done", value_of(1))
    story.now += 60_000
    story.read(None)
    story.done(2)
    story.enqueue(3)
    story.read(None)
    story.call("cancel", 1, b"", b"a")
    story.read(b"%d|cancelled|" % story.now)
    story.returned("cancelled")


def test_a_result_of_another_attempt() -> None:
    with pytest.raises(Broken, match="finished in g by c1 with the result"):
        Kept().done(1, whose=2)


def test_a_result_of_an_earlier_job_with_the_id() -> None:
    story = Kept()
    kept = story.done()
    story.enqueue(2)
    with pytest.raises(Broken, match="should have None"):
        story.read(kept)


@pytest.mark.parametrize("kept", [b"dead|", b"done|null", b"cancelled|"])
def test_a_result_that_is_not_how_the_job_ended(kept: bytes) -> None:
    story = Kept()
    story.done()
    with pytest.raises(Broken, match="should have Kept"):
        story.read(b"%d|" % story.now + kept)


def test_a_result_that_is_gone_early() -> None:
    story = Kept()
    story.done()
    story.now += 59_000
    with pytest.raises(Broken, match="is gone"):
        story.read(None)


def test_a_result_that_redis_lost() -> None:
    story = Kept()
    story.call("FLUSHALL", b"OK")
    story.configure(b"g", b"results", b"g=60000")
    index = len(story.model.calls)
    story.done()
    story.model.forget(index)
    story.read(None)


def test_a_result_of_a_kicked_job() -> None:
    story = Kept()
    story.enqueue()
    story.bury()
    kept = b"%d|dead|buried|no" % story.now
    story.read(kept)
    story.call("kick", 1, b"", b"g", b"0", b"10", b"a")
    story.read(None)
    with pytest.raises(Broken, match="should have None"):
        story.read(kept)


def test_a_wait_that_lies() -> None:
    story = Kept()
    story.read(story.done())
    for outcome, value in (("done", value_of(2)), ("cancelled", None), ("dead", None)):
        with pytest.raises(Broken, match="which nothing showed"):
            story.returned(outcome, value)
    with pytest.raises(Broken, match="which nothing showed"):  # this wait began later
        story.returned("done", value_of(1), since=story.model.calls_seen)


def test_a_wait_that_tells_of_an_earlier_job_in_another_shard() -> None:
    story = Kept()
    kept = story.done()
    story.move_to(1)
    story.enqueue(2)
    began = story.model.calls_seen
    story.read(kept)
    with pytest.raises(Broken, match="how an earlier job had ended"):
        story.returned("done", value_of(1), since=began)
