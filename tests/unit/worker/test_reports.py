"""What the log says of attempts that ended: a failure is seen with its reason, and no body is."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, ValidationError

from streamdq import Bury, Retry, Snooze
from streamdq.operations.attempts.ends import AttemptResult
from streamdq.store.replies import Refused
from streamdq.worker.ends import EndSender
from tests.unit.worker.rig import Rig, held

Line = tuple[str, str, bool]  # level, the line's error, whether the exception came with it


class Body(BaseModel):
    amount: int


def raises(error: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise error

    return do


def refuses_what_it_quotes() -> None:
    Body.model_validate({"amount": "swordfish"})


def refuses_because_of_it() -> None:
    try:
        refuses_what_it_quotes()
    except ValidationError as error:
        raise ValueError("no good") from error


def refuses_in_a_group() -> None:
    with pytest.raises(ValidationError) as caught:
        refuses_what_it_quotes()
    raise ExceptionGroup("tasks failed", [KeyError("a"), ExceptionGroup("deeper", [caught.value])])


class Unreadable(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # what a user's class may do
        raise RuntimeError("not even this")


class Logged:
    """Runs one job, and keeps what was logged of its end."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log

    async def of(self, does: Callable[[], Any], *, retry: str = "1s", show: bool = True, level: int = 10) -> list[Line]:
        async def handle(_body: Any) -> None:
            does()

        rig = Rig(handle, retry=retry, show_errors=show)
        with self._log.at_level(level, "streamdq"):
            await rig.run(held("1"))
            rig.reports.confirmed(rig.ends, Refused(0, frozenset()))
        assert "swordfish" not in self._log.text
        return [
            (one.levelname.lower(), vars(one)["streamdq_fields"]["error"], one.exc_info is not None)
            for one in self._log.records
            if getattr(one, "streamdq_fields", {}).get("event") == "attempt ended"
        ]


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture) -> Logged:
    return Logged(caplog)


LINES: list[tuple[Callable[[], Any], str, Line]] = [
    (lambda: None, "1s", ("debug", None, False)),  # type: ignore[list-item]  # no error
    (raises(ValueError("no")), "1s", ("warning", "ValueError: no", True)),
    (raises(ValueError("no")), "none", ("error", "ValueError: no", True)),
    (raises(Retry("5s", "busy")), "1s", ("warning", "Retry: busy", False)),
    (raises(Snooze("5s", "not yet")), "1s", ("info", "Snooze: not yet", False)),
    (raises(Bury("no such user")), "1s", ("error", "no such user", False)),
    (refuses_because_of_it, "1s", ("warning", "ValueError: no good", False)),
    (refuses_in_a_group, "1s", ("warning", "ExceptionGroup: tasks failed (2 sub-exceptions)", False)),
    (
        raises(ExceptionGroup("several", [KeyError("a")])),
        "1s",
        ("warning", "ExceptionGroup: several (1 sub-exception)", True),
    ),
    (raises(Unreadable("odd")), "1s", ("warning", "Unreadable: odd", False)),
    (raises(SystemExit(1)), "1s", ("warning", "SystemExit: 1", True)),
    (raises(ValueError("half \udfff")), "1s", ("warning", "ValueError: half  ", False)),  # can't be written
]


@pytest.mark.parametrize(("does", "retry", "line"), LINES)
async def test_a_failure_is_logged_by_how_bad_it_is(
    reported: Logged, does: Callable[[], Any], retry: str, line: Line
) -> None:
    assert (await reported.of(does, retry=retry))[-1:] == [line]


@pytest.mark.parametrize(
    ("error", "retry", "delay_ms"),
    [(ValueError("no"), "0", 0), (ValueError("no"), "1s", 1000), (Snooze("0s"), "1s", 0), (Bury("why"), "1s", None)],
)
async def test_the_delay_to_the_next_attempt_is_logged_also_if_it_is_none_at_all(
    reported: Logged, caplog: pytest.LogCaptureFixture, error: Exception, retry: str, delay_ms: int | None
) -> None:
    await reported.of(raises(error), retry=retry)
    assert caplog.records[-1].streamdq_fields["delay_ms"] == delay_ms  # type: ignore[attr-defined]


async def test_what_a_model_refuses_is_reported_without_its_values(reported: Logged) -> None:
    ((level, error, raised),) = await reported.of(refuses_what_it_quotes)
    assert (level, raised) == ("warning", False)
    assert error == "ValidationError: amount: Input should be a valid integer, unable to parse string as an integer"


async def test_without_show_errors_neither_message_nor_traceback_is_logged(
    reported: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    assert await reported.of(raises(ValueError("no")), show=False) == [("warning", "ValueError", False)]
    assert await reported.of(raises(Bury("why")), show=False, retry="none") == [
        ("warning", "ValueError", False),
        ("error", "Bury", False),
    ]
    assert "test_reports.py" in caplog.records[-1].streamdq_fields["at"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_thread", [True, False])
@pytest.mark.parametrize("show", [True, False])
async def test_the_calls_begin_with_the_users(caplog: pytest.LogCaptureFixture, in_thread: bool, show: bool) -> None:
    def plain(_body: Any) -> None:
        raises(ValueError("no"))()

    async def asynchronous(body: Any) -> None:
        plain(body)

    rig = Rig(plain if in_thread else asynchronous, retry="1s", show_errors=show)
    with caplog.at_level(logging.DEBUG, "streamdq"):
        await rig.run(held("1"))
        rig.reports.confirmed(rig.ends, Refused(0, frozenset()))
    failed, ended = [one for one in caplog.records if one.levelno in (logging.DEBUG, logging.WARNING)][-2:]
    own = [] if in_thread else ["asynchronous"]
    assert [call.rpartition(".")[2] for call in failed.streamdq_fields["way"]] == [*own, "plain", "do"]  # type: ignore[attr-defined]
    if show:
        assert [call.name for call in traceback.extract_tb(ended.exc_info[2])] == [*own, "plain", "do"]  # type: ignore[index]


async def test_a_job_that_is_done_costs_no_line_unless_somebody_listens(reported: Logged) -> None:
    assert await reported.of(lambda: None, level=logging.INFO) == []


async def in_the_standard_library() -> None:
    await asyncio.Event().wait()


async def in_streamdq() -> None:
    await EndSender.drained(Mock(_empty=asyncio.Event(), size=1))


@pytest.mark.parametrize("waits", [in_the_standard_library, in_streamdq])
async def test_one_whose_ttr_passed_is_reported_with_the_users_own_line(
    caplog: pytest.LogCaptureFixture, waits: Callable[[], Awaitable[None]]
) -> None:
    began = asyncio.Event()

    async def handle(_body: Any) -> None:
        began.set()
        await waits()

    rig, one = Rig(handle, retry="1s"), held("1", 1000)
    with caplog.at_level(logging.WARNING, "streamdq"):
        rig.runner.take([one])
        await began.wait()
        one.deadline = 0.0
        watch = asyncio.create_task(rig.deadlines.run())
        assert await rig.have_ended(1) == {"1": AttemptResult.RETRY}
        rig.reports.confirmed(rig.ends, Refused(0, frozenset()))
        watch.cancel()
    fields = caplog.records[0].streamdq_fields  # type: ignore[attr-defined]
    assert fields["error"] == "TTR 1s passed"
    assert fields["at"].partition(":")[0] == __file__
