"""When a worker sends heartbeats, and what their thread does while the event loop is blocked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from redis.exceptions import ResponseError

from streamdq.link.command import Command
from streamdq.link.failures import LinkError
from streamdq.operations.attempts.ends import AttemptResult, End
from streamdq.process.health import STALLED_S, WorkerHealth
from streamdq.process.loop import wait
from streamdq.store.replies import Refused
from streamdq.times.clock import ManualClock, RedisClock
from streamdq.worker import blocked_loop
from streamdq.worker import heartbeats as heartbeats_module
from streamdq.worker.deadline import Deadlines
from streamdq.worker.ends import EndSender
from streamdq.worker.heartbeats import Heartbeats
from tests.unit.fake_redis import LOST, Call, Rig, call_of
from tests.unit.virtual_time import in_this_thread, in_virtual_time
from tests.unit.worker.rig import held, member_of


class Pumped:
    """In the place of the thread: the loop calls ``beat`` when it is due, unless it is ``blocked``."""

    def __init__(self) -> None:
        self.sooner = asyncio.Event()
        self.beating: list[Any] = []

    def add(self, one: Any) -> None:
        self.beating.append(one)

    def remove(self, one: Any) -> None:
        self.beating.remove(one)

    def wake(self) -> None:
        self.sooner.set()


class BlockingLink:
    """Stands in for Link; its answers are those of an asynchronous one."""

    is_cluster = False

    def __init__(self, link: Any) -> None:
        self._link = link

    def send(self, commands: Sequence[Command], _timeout_s: float, _blocking: bool = False) -> list[Any]:
        replies = []
        for call in map(call_of, commands):
            self._link.calls[call.name].append(call)
            reply = self._link.answers[call.name](call)
            if isinstance(reply, LinkError):
                raise reply
            replies.append(reply)
        return replies

    def close(self) -> None:
        """There is nothing to close."""


class Signing(Rig):
    """A worker that holds claims while ``holding``; when it sent its heartbeats."""

    def __init__(self, clock: RedisClock | None = None, **settings: float) -> None:
        super().__init__({}, clock, **settings)
        self.holding = self.failing = False
        self.given: list[float] = []
        self.late: list[tuple[asyncio.Task[None] | None, End]] = []
        self.confirmed_ends: list[tuple[list[End], set[int]]] = []
        self.link.answers |= {"heartbeat": self.heartbeat, "ZREM": lambda _: 1}
        self.pulse = Pumped()
        self.idle = False
        self.left: list[float] = []
        self.blocked_until = 0.0  # the thread ran until then
        blocking: Any = BlockingLink(self.link)
        attempts: Any = self
        member = member_of(self.link, self.store)
        none: Any = None
        self.sender = EndSender(member, self)
        self.health = WorkerHealth("streamdq", "default", 10)
        self.deadlines = Deadlines(member, {}, none, none, none)
        self.send_touches = self.deadlines.send_touches
        self.heartbeats = Heartbeats(
            blocking, self.session, self.store.scripts, "me", attempts, self.sender, lambda: self.holding, self.health
        )
        self.heartbeats.leave = lambda: self.left.append(time.monotonic())

    def named(self, _task: Any) -> dict[str, Any]:
        return {"topic": "t", "id": "j"}

    def overdue(self, _now: float) -> list[asyncio.Task[None]]:
        late, self.late = self.late, []
        for _, end in late:
            self.sender.put_beside(end)
        return [task for task, _ in late if task is not None]

    def cut(self, task: asyncio.Task[None]) -> None:
        task.cancel()

    def confirmed(self, ends: Sequence[End], refused: Refused) -> None:
        self.confirmed_ends.append(([*ends], {*refused.stale}))

    def heartbeat(self, _: Call) -> Any:
        if self.failing:
            return LOST
        self.given.append(time.monotonic())
        return int(time.monotonic() * 1000)

    def claim(self) -> None:
        self.holding = True
        self.heartbeats.claimed()

    async def run(self) -> None:
        late_s = 0.0
        while True:
            self.pulse.sooner.clear()
            left_s = self.heartbeats.beat(late_s)
            until = time.monotonic() + left_s
            await wait(self.pulse.sooner, None if left_s == float("inf") else left_s)
            late_s = max(0.0, time.monotonic() - max(until, self.blocked_until))

    def block(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """The loop runs nothing for so long, and the thread goes on."""
        clock: Any = time.monotonic
        end = clock.now_s + seconds
        while clock.now_s < end:
            wait_s = self.heartbeats.beat()
            clock.now_s += max(0.0, min(wait_s, end - clock.now_s))
            each()
        self.blocked_until = clock.now_s


@pytest.fixture
def signing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Signing]:
    """Makes one, with what stands in for the thread."""

    def make(clock: RedisClock | None = None, **settings: float) -> Signing:
        made = Signing(clock, **settings)
        monkeypatch.setattr(heartbeats_module, "pulse", made.pulse)
        monkeypatch.setattr(time, "sleep", in_this_thread(passes, time.sleep))
        return made

    def passes(seconds: float) -> None:
        virtual: Any = time.monotonic
        virtual.now_s += seconds

    return make


Make = Callable[..., Signing]


@in_virtual_time
async def test_one_before_the_first_claim_and_none_while_it_holds_nothing(signing: Make) -> None:
    rig = signing()
    await rig.heartbeats.begin(rig.link)
    assert len(rig.given) == 1
    async with rig.running():
        await asyncio.sleep(3600)
    assert len(rig.given) == 1
    await rig.heartbeats.end(rig.link)
    assert [call.args for call in rig.link.calls["ZREM"]] == [(rig.session.keys.heartbeats, "me")]
    assert rig.pulse.beating == []


@in_virtual_time
async def test_one_a_second_while_it_holds_claims(signing: Make) -> None:
    rig = signing()
    async with rig.running():
        for _ in range(3):
            await asyncio.sleep(100)
            began = time.monotonic()
            rig.claim()
            await asyncio.sleep(10.5)
            rig.holding = False
            await asyncio.sleep(10)
            given = [when - began for when in rig.given]
            assert len(given) == 10, "none after its last claim has ended"
            assert all(0 <= when - number <= 0.1 for number, when in enumerate(given, start=1))
            rig.given.clear()


@in_virtual_time
async def test_a_blocked_loop_costs_none(signing: Make) -> None:
    rig = signing()
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1.5)
        began = time.monotonic()
        rig.given.clear()
        rig.block(60)
        assert len(rig.given) == 60
        assert all(0 < when - began <= number for number, when in enumerate(rig.given, start=1))


@in_virtual_time
async def test_claims_that_end_at_once_cost_nothing(signing: Make) -> None:
    rig = signing()
    async with rig.running():
        for _ in range(1000):
            rig.claim()
            await asyncio.sleep(0.005)
            rig.holding = False
            await asyncio.sleep(0.5)
    assert rig.given == []


@in_virtual_time
async def test_when_redis_is_back_it_knows_at_once_who_lives(signing: Make) -> None:
    rig = signing()
    async with rig.running():
        rig.claim()
        await asyncio.sleep(5)
        rig.failing = True
        await asyncio.sleep(60)
        rig.failing, back = False, time.monotonic()
        await asyncio.sleep(5)
    assert next(when for when in rig.given if when >= back) - back <= 0.7


@in_virtual_time
async def test_a_first_sign_that_fails_stops_no_worker(signing: Make) -> None:
    rig = signing()
    rig.failing = True
    await rig.heartbeats.begin(rig.link)
    assert rig.given == []


@in_virtual_time
async def test_a_sign_that_comes_too_late_is_taken_back(signing: Make) -> None:
    """The worker has left while it was under way."""
    rig = signing()
    await rig.heartbeats.begin(rig.link)
    rig.claim()
    calls: list[str] = []

    def heartbeat(_: Call) -> int:
        if not calls:
            rig.heartbeats._ended = True
        calls.append("heartbeat")
        return 1

    rig.link.answers["heartbeat"] = heartbeat
    rig.link.answers["ZREM"] = lambda _: calls.append("ZREM") or 1  # type: ignore[func-returns-value]
    rig.block(1.1)
    assert calls == ["heartbeat", "ZREM"]


@in_virtual_time
async def test_switched_off_or_with_a_clock_of_a_tests_own_it_gives_none(signing: Make) -> None:
    for rig in (signing(worker_timeout_s=0), signing(ManualClock())):
        await rig.heartbeats.begin(rig.link)
        rig.claim()
        rig.block(10)
        await rig.heartbeats.end(rig.link)
        assert rig.link.calls == {}


# -- a blocked loop


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(blocked_loop, "_log", lambda text, job: lines.append(f"{text} {job}"))
    return lines


@in_virtual_time
async def test_it_is_said_once_for_how_long_it_was_blocked(signing: Make, said: list[str]) -> None:
    rig = signing()
    async with rig.running():
        rig.claim()
        for seconds in (0.9, 5, 0.5, 3):
            await asyncio.sleep(1)
            rig.block(seconds)
        await asyncio.sleep(1)
    assert len(said) == 2
    for line, seconds in zip(said, (5, 3), strict=True):
        assert line.startswith("the event loop was blocked for ")
        assert seconds - 0.3 <= float(line.split()[6]) <= seconds
        assert "make it `def`" in line


@in_virtual_time
async def test_a_long_block_is_said_while_it_lasts_and_not_again(signing: Make, said: list[str]) -> None:
    rig = signing()
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        rig.block(11)
        assert [line[:30] for line in said] == ["the event loop has been blocke"]
        rig.block(50)
        await asyncio.sleep(1)
    assert len(said) == 1


@in_virtual_time
async def test_a_process_that_stood_still_blames_nobody_for_the_loop(signing: Make, said: list[str]) -> None:
    """As when C code keeps Python's lock: the thread could not look, either."""
    rig = signing()
    clock: Any = time.monotonic
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        clock.now_s += 20
        await asyncio.sleep(1)
    assert len(said) == 1
    assert said[0].startswith("this process stood still for 20.")


@in_virtual_time
async def test_who_asks_for_the_health_learns_of_a_blocked_loop_without_claims(signing: Make) -> None:
    rig = signing()
    async with rig.running():
        await asyncio.sleep(100)
        rig.block(2 * STALLED_S)
        assert rig.health.stalled == "", "nobody has asked, so nobody looks"
        rig.heartbeats.watch()
        await asyncio.sleep(1)
        rig.block(STALLED_S - 1)
        assert rig.health.stalled == ""
        rig.block(2)
        assert rig.health.stalled == "loop"
        await asyncio.sleep(1)
        assert rig.health.stalled == ""
        assert rig.given == [], "no heartbeat without claims"


@in_virtual_time
async def test_a_loop_that_is_blocked_by_a_handler_is_stalled(signing: Make) -> None:
    rig = signing()
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        rig.block(STALLED_S + 1)
        assert rig.health.stalled == "loop"
        await asyncio.sleep(1)
        assert rig.health.stalled == ""


@in_virtual_time
async def test_ends_that_wait_are_sent_while_it_is_blocked(signing: Make) -> None:
    """Those of attempts that are overdue, and those that the loop could not send."""
    rig = signing()
    task = asyncio.create_task(asyncio.sleep(3600))
    late = [End(held(f"j{number}"), AttemptResult.RETRY, "its TTR passed", 0, 1) for number in range(2)]
    done = End(held("done"), AttemptResult.DONE)
    refuses = True
    rig.link.answers["retry"] = lambda _: ResponseError("OOM") if refuses else [1, 1]
    rig.link.answers["finish"] = lambda _: [1]
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        rig.sender.put(done)
        rig.late = [(task, late[0])]
        rig.block(1)
        assert len(rig.link.calls["finish"]) == 1, "a call that fails holds up no other"
        assert len(rig.link.calls["retry"]) > 1, "it is tried again"
        rig.late, refuses = [(None, late[1])], False
        rig.block(1)
        assert rig.confirmed_ends == [], "the loop hears of it when it is back"
        sent = len(rig.link.calls["retry"]), 1
        await asyncio.sleep(0.1)
        assert rig.confirmed_ends == [([done], set()), (late, {0})]
        assert task.cancelled()
        async with asyncio.timeout(1):
            await rig.sender.drained()
        sending = asyncio.create_task(rig.sender.run())
        await asyncio.sleep(1)
        sending.cancel()
        calls = rig.link.calls
        assert (len(calls["retry"]), len(calls["finish"])) == sent, "and the loop sends none again"


@in_virtual_time
async def test_what_the_thread_could_not_send_the_loop_sends(signing: Make) -> None:
    rig = signing()
    rig.link.answers["finish"] = lambda _: LOST if rig.failing else [1]
    end = End(held("j"), AttemptResult.DONE)
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        rig.failing = True
        rig.sender.put(end)
        rig.block(1)
        rig.failing = False
        sending = asyncio.create_task(rig.sender.run())
        await rig.sender.drained()
        sending.cancel()
    assert rig.confirmed_ends == [([end], set())]


@in_virtual_time
async def test_an_end_that_cant_be_sent_holds_up_no_other_while_it_is_blocked(signing: Make) -> None:
    """Its handler has deleted what is sent of its Job."""
    rig = signing()
    rig.link.answers["finish"] = lambda _: [1]
    broken, done = held("broken"), held("done")
    del broken.job.id
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        rig.sender.put(End(broken, AttemptResult.DONE))
        rig.sender.put(End(done, AttemptResult.DONE))
        rig.block(1)
        assert len(rig.link.calls["finish"]) == 1
        await asyncio.sleep(0.1)
        assert rig.sender.size == 0


@in_virtual_time
async def test_touches_are_sent_while_it_is_blocked(signing: Make) -> None:
    """Those of handlers in threads, each once; a call that fails is made again."""
    rig = signing()
    rig.link.answers["touch"] = lambda _: LOST if rig.failing else [1]
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        one = held("j")
        one.deadline, one.touch_ms = time.monotonic() + 10, 10_000
        rig.deadlines.running[asyncio.create_task(asyncio.sleep(3600))] = [one]
        rig.block(1)
        assert len(rig.link.calls["touch"]) == 1
        one.deadline += 5
        rig.failing = True
        rig.block(1)
        calls = len(rig.link.calls["touch"])
        assert calls > 2
        rig.failing = False
        rig.block(1)
        assert len(rig.link.calls["touch"]) == calls + 1


@in_virtual_time
async def test_a_program_with_a_loop_of_its_own_is_not_ended(signing: Make) -> None:
    """Only the worker ends, when the loop is back."""
    rig = signing(hung_exit_s=60)
    rig.link.answers["retry"] = lambda _: [1]
    ended: list[float] = []
    rig.heartbeats.all_hang = lambda: ended.append(time.monotonic())
    async with rig.running():
        rig.claim()
        await asyncio.sleep(1)
        task = asyncio.create_task(asyncio.sleep(0))
        rig.late = [(task, End(held("j"), AttemptResult.RETRY, "its TTR passed", 0, 1))]
        rig.block(300)
        assert (rig.left, ended) == ([], [])
        await asyncio.sleep(1)
        assert len(ended) == 1


@in_virtual_time
async def test_it_leaves_when_handlers_hang_in_it_beyond_their_ttr(signing: Make) -> None:
    rig = signing(hung_exit_s=60)
    rig.link.answers["retry"] = lambda _: [1]
    async with rig.running():
        rig.claim()
        rig.block(300)
        assert not rig.left, "no TTR has passed"
        task = asyncio.create_task(asyncio.sleep(0))
        rig.late = [(task, End(held("j"), AttemptResult.RETRY, "its TTR passed", 0, 1))]
        began = time.monotonic()
        rig.block(59)
        assert not rig.left
        rig.link.answers["finish"] = lambda _: [1]
        rig.heartbeats.leave = lambda: rig.left.append(len(rig.link.calls["finish"]))
        rig.sender.put(End(held("done"), AttemptResult.DONE))
        rig.block(2)
        assert rig.left[0] == 1, "what has ended is told before"
        await asyncio.sleep(1)
        rig.left.clear()
        rig.block(300)
        assert not rig.left, "it was back meanwhile"
        assert time.monotonic() > began


@in_virtual_time
async def test_it_never_leaves_if_that_is_off(signing: Make) -> None:
    rig = signing(hung_exit_s=0)
    rig.link.answers["retry"] = lambda _: [1]
    async with rig.running():
        rig.claim()
        task = asyncio.create_task(asyncio.sleep(0))
        rig.late = [(task, End(held("j"), AttemptResult.RETRY, "its TTR passed", 0, 1))]
        rig.block(3600)
    assert not rig.left
