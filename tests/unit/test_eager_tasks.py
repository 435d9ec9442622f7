"""Tasks that begin before their maker has noted them, as with ``asyncio.eager_task_factory``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from streamdq.errors import ServerUnavailable
from streamdq.http.activity import Recent
from streamdq.http.write_probe import WriteProbe
from streamdq.worker.deadline import Touches
from streamdq.worker.reports import DeadLetterNotices
from tests.eager import eager_loop
from tests.unit.fake_redis import FakeLink
from tests.unit.worker.rig import held, member_of
from tests.waiting import eventually


def eagerly(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=eager_loop) as runner:
        runner.run(main)


def test_the_loop_is_as_it_says() -> None:
    steps = []

    async def step() -> None:
        steps.append("begun")
        assert asyncio.current_task() is not outer[0]
        await asyncio.sleep(0)
        steps.append("ended")

    outer: list[Any] = []

    async def main() -> None:
        outer.append(asyncio.current_task())
        task = asyncio.create_task(step())
        assert steps == ["begun"]
        assert asyncio.current_task() is outer[0]
        await task
        assert steps == ["begun", "ended"]

    eagerly(main())


def test_touches_are_sent() -> None:
    async def main() -> None:
        link: Any = FakeLink()
        link.answers["touch"] = lambda _: [1]
        deadlines: Any = SimpleNamespace(lost=None, aborted=None)  # none is
        touches = Touches(member_of(link), deadlines)
        for _ in range(2):
            touches.put(held("1"), 1000)
            await eventually(lambda: not touches._waiting, "it is sent")
        assert len(link.calls["touch"]) == 2

    eagerly(main())


def test_on_dead_functions_that_await_nothing_are_called_again() -> None:
    async def main() -> None:
        reported: list[str] = []

        async def note(job: Any) -> None:
            reported.append(job.id)

        notices = DeadLetterNotices([note], member_of(FakeLink()))
        for number in range(3):
            notices.put(held(str(number)).job)
            await asyncio.sleep(0)
        await notices.close(60)
        assert reported == ["0", "1", "2"]

    eagerly(main())


def test_a_probe_whose_write_awaits_nothing_is_written_again() -> None:
    async def main() -> None:
        writes = []

        async def write() -> None:
            writes.append(1)

        probe = WriteProbe(write)
        for _ in range(2):
            await probe.check()
            probe._holds_until = 0.0
        assert len(writes) == 2

    eagerly(main())


def test_a_look_at_what_happened_that_follows_one_which_failed_at_once_ends_with_the_server() -> None:
    async def main() -> None:
        looks: list[Any] = []
        reading = asyncio.Event()

        async def store() -> Any:
            looks.append(asyncio.current_task())
            if len(looks) == 1:
                raise ServerUnavailable("as told")
            await reading.wait()

        recent = Recent(store, lambda _: asyncio.sleep(0))
        for _ in range(2):
            await recent.of([], lambda _: True, 0, 60_000, 1)
        await asyncio.sleep(0)
        await recent.close()
        assert looks[1] is not None
        assert looks[1].cancelled()

    eagerly(main())
