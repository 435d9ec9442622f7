"""What a handler's signature says."""

from __future__ import annotations

import functools
import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from streamdq import Job, RunningJob
from streamdq.errors import InvalidInput
from streamdq.worker.handlers import Handler, Handlers, handler_of


class Order(BaseModel):
    order_id: int


def read(function: Any, batch: int | None = None) -> Handler:
    return handler_of("t", function, batch, None, None)


async def plain(body: dict) -> None: ...
async def model(order: Order) -> None: ...
async def with_job(order: Order, job: Job) -> None: ...
async def job_first(job: Job, order: Order) -> None: ...
async def named_job(body: Any, job: Any) -> None: ...
async def other_name(body: Any, task: Job) -> None: ...
async def running_job(body: Any, task: RunningJob) -> None: ...
async def untyped(body): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
async def with_default(body: int, times: int = 3) -> None: ...
async def keyword_job(body: int, *, job: Job) -> None: ...
async def arguments(*bodies: Any) -> None: ...
def sync(body: list[int]) -> None: ...


async def and_more(body: int, *args: str, **kwargs: str) -> None: ...
async def decorated(*args: Any, **kwargs: Any) -> None: ...


class Service:
    async def close(self, order: Order) -> None: ...


@pytest.mark.parametrize(
    ("function", "body", "job_name"),
    [
        (plain, {"a": 1}, None),
        (model, {"order_id": 5}, None),
        (with_job, {"order_id": 5}, "job"),
        (job_first, {"order_id": 5}, "job"),
        (named_job, 5, "job"),
        (other_name, "x", "task"),
        (running_job, "x", "task"),
        (untyped, [1], None),
        (with_default, 5, None),
        (keyword_job, 5, "job"),
        (arguments, 5, None),
        (sync, [1, 2], None),
        (Service().close, {"order_id": 5}, None),
        (and_more, 5, None),
        (decorated, {"order_id": 5}, None),
    ],
)
def test_what_is_understood(function: Any, body: Any, job_name: str | None) -> None:
    handler = read(function)
    assert handler.wants_job == job_name
    assert handler.is_async is (function is not sync)
    checked = handler.validate(json.dumps(body).encode())
    assert checked == (Order(**body) if isinstance(checked, Order) else body)


def test_the_job_is_passed_by_its_name() -> None:
    seen: list[Any] = []

    def handle(job: Job, order: Order) -> None:
        seen.append((order, job))

    def positional(order: Order, task: Job) -> None:
        seen.append((order, task))

    read(positional).call("body", "job")
    assert seen == [("body", "job")]
    with pytest.raises(TypeError):
        read(handle).call("body", "job")


@pytest.mark.parametrize(("function", "body"), [(model, b'{"order_id": "x"}'), (model, b"[]"), (sync, b'{"a": 1}')])
def test_bodies_that_do_not_fit(function: Any, body: bytes) -> None:
    with pytest.raises(ValidationError):
        read(function).validate(body)


async def two_bodies(one: int, two: int) -> None: ...
async def keyword_body(*, body: int) -> None: ...
async def optional_body(body: int = 0) -> None: ...
async def only_named(**kwargs: int) -> None: ...
async def unresolved(body: Unheard) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Odd: ...


async def not_for_pydantic(body: Odd) -> None: ...
async def no_expression(body: "no type") -> None: ...  # type: ignore[valid-type]  # noqa: F722
async def a_value(body: Any) -> None: ...


a_value.__annotations__["body"] = {"a": int}


@pytest.mark.parametrize(
    "function",
    [two_bodies, keyword_body, optional_body, only_named, unresolved, not_for_pydantic, no_expression, a_value],
)
def test_signatures_that_are_refused(function: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^handler [^\n]+$"):
        read(function)


def test_an_error_names_the_parameters() -> None:
    with pytest.raises(InvalidInput, match=r"it takes one, two$"):
        read(two_bodies)


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda: "ran", "ran"),
        (lambda job: job, "the job"),
        (lambda *, times=3: times, 3),
        (functools.partial(lambda body: body, "its own"), "its own"),
    ],
)
def test_a_handler_needs_no_parameter_for_the_body(function: Any, result: Any) -> None:
    handler = read(function)
    assert handler.call(handler.validate(b'{"any": 1}'), "the job") == result
    with pytest.raises(InvalidInput, match="is a list"):
        read(function, batch=2)


async def slots(slots: list[Order]) -> None: ...
async def slots_and_jobs(slots: list[Order], jobs: list[RunningJob]) -> None: ...
async def slots_and_plain_jobs(slots: list[Order], jobs: list[Job]) -> None: ...
async def bare_list(slots: list) -> None: ...


def test_batches_check_each_body() -> None:
    assert read(slots, 10).validate(b'{"order_id": 5}') == Order(order_id=5)
    assert read(slots_and_jobs, 10).wants_job == read(slots_and_plain_jobs, 10).wants_job == "jobs"
    assert read(bare_list, 500).validate(b"5") == 5
    assert read(untyped, 1).validate(b"5") == 5


@pytest.mark.parametrize("batch", [0, -1, 501, True])
def test_batch_sizes_that_are_refused(batch: int) -> None:
    with pytest.raises(InvalidInput, match="not between 1 and 500"):
        read(slots, batch)


def test_a_batch_handler_takes_a_list() -> None:
    with pytest.raises(InvalidInput, match="is a list"):
        read(model, 10)


def test_what_annotated_says_of_the_body_is_checked() -> None:
    async def one(body: Annotated[int, Field(gt=0)], task: Annotated[Job, "whole"]) -> None: ...
    async def several(body: Annotated[list[Annotated[int, Field(gt=0)]], "of one topic"]) -> None: ...

    for handler in (read(one), read(several, batch=5)):
        assert handler.validate(b"1") == 1
        with pytest.raises(ValidationError, match="greater than 0"):
            handler.validate(b"0")
    assert read(one).wants_job == "task"


def test_a_partial_and_an_object_are_read_as_what_they_call() -> None:
    async def curried(times: int, order: Order, job: Job) -> None: ...

    class Plain:
        def __call__(self, order: Order) -> None: ...

    class Awaited:
        async def __call__(self, order: Order) -> None: ...

    handlers = [read(functools.partial(curried, 2)), read(Plain()), read(Awaited())]
    assert [handler.is_async for handler in handlers] == [True, False, True]
    assert [handler.wants_job for handler in handlers] == ["job", None, None]
    assert all(handler.validate(b'{"order_id": 1}') == Order(order_id=1) for handler in handlers)


def test_handlers_of_topics_that_are_no_longer_served_are_there_but_not_kept() -> None:
    handlers = Handlers({"own": read(plain)}, every=read(model))
    handlers.serve(["a", "b"])
    assert (set(handlers), handlers["a"].topic, handlers["a"].function) == ({"own", "a", "b"}, "a", model)
    handlers.serve(["b"])
    assert set(handlers) == {"own", "b"}
    assert (handlers["a"].topic, handlers["own"].function) == ("a", plain)
    assert set(handlers) == {"own", "b"}
    with pytest.raises(KeyError):
        Handlers({"own": read(plain)}, every=None)["a"]
