"""What a method of a queue raises when it is given arguments that it does not have: it names the method, not what that
passes them to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from streamdq import Queue, Topic, Worker
from streamdq.operations.methods import misused
from streamdq.testing import memory

WORKER: Any = Worker("memory://misuse")
ORDERS: Any = Topic("order.close", dict)
MISSPELT = r"^enqueue\(\) got an unexpected keyword argument 'dealy'; did you mean 'delay'\?$"


@pytest.fixture
def queue() -> Iterator[Any]:
    server = memory()
    with server.queue() as queue:
        yield queue
    server.close()


@pytest.fixture
async def awaited() -> AsyncIterator[Any]:
    server = memory()
    async with server.async_queue() as queue:
        yield queue
    server.close()


def test_a_misspelt_option(queue: Any) -> None:
    with pytest.raises(TypeError, match=MISSPELT):
        queue.enqueue("order.close", {}, dealy="30m")
    with pytest.raises(TypeError, match=MISSPELT):
        ORDERS.enqueue(queue, {}, dealy="30m")
    with queue.pipeline() as pipe, pytest.raises(TypeError, match=MISSPELT):
        pipe.enqueue("order.close", {}, dealy="30m")


async def test_a_misspelt_option_in_asyncio(awaited: Any) -> None:
    with pytest.raises(TypeError, match=MISSPELT):
        await awaited.enqueue("order.close", {}, dealy="30m")
    with pytest.raises(TypeError, match=MISSPELT):
        await ORDERS.enqueue(awaited, {}, dealy="30m")
    async with awaited.pipeline() as pipe:
        with pytest.raises(TypeError, match=MISSPELT):
            await pipe.enqueue("order.close", {}, dealy="30m")


def test_a_misspelt_option_of_another_method(queue: Any) -> None:
    with pytest.raises(TypeError, match=r"^configure\(\) got an .* 'shard'; did you mean 'shards'\?$"):
        queue.configure("order.close", shard=2)
    with pytest.raises(TypeError, match=r"^schedule\(\) got an .* 'evry'; did you mean 'every'\?$"):
        queue.schedule("order.close", evry="10m")


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        (Worker, {"concurency": 4}, r"^Worker\(\) .* 'concurency'; did you mean 'concurrency'\?$"),
        (Queue, {"namspace": "a"}, r"^Queue\(\) .* 'namspace'; did you mean 'namespace'\?$"),
        (Topic, {"rety": "1s"}, r"^Topic\(\) .* 'rety'; did you mean 'retry'\?$"),
        (WORKER.handler, {"rety": "1s"}, r"^handler\(\) .* 'rety'; did you mean 'retry'\?$"),
        (WORKER.upcast, {"sinc": 2}, r"^upcast\(\) .* 'sinc'; did you mean 'since'\?$"),
    ],
)
def test_a_misspelt_option_of_what_a_program_makes(call: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call(**given)


def test_a_misspelt_option_of_find_and_take(queue: Any) -> None:
    with pytest.raises(TypeError, match=r"^find\(\) .* 'stat'; did you mean 'state'\?$"):
        queue.find("t", stat="dead")
    with pytest.raises(TypeError, match=r"^take\(\) .* 'timout'; did you mean 'timeout'\?$"):
        queue.take("t", timout=1)


def test_a_type_error_within_a_constructor_is_its_own() -> None:
    class Odd(Worker):
        def take_turns(self, *_: Any) -> None:
            raise TypeError("of its own")

    with pytest.raises(TypeError, match=r"^of its own$"):
        Odd()


def test_an_option_that_is_like_none(queue: Any) -> None:
    with pytest.raises(TypeError, match=r"^enqueue\(\) got an unexpected keyword argument 'colour'$"):
        queue.enqueue("order.close", {}, colour="red")


async def test_other_arguments_that_do_not_fit(queue: Any, awaited: Any) -> None:
    for call in (lambda: queue.enqueue(), lambda: awaited.enqueue()):
        with pytest.raises(TypeError, match=r"^enqueue\(\)[: ]+missing .*'topic'"):
            await call()
    for call in (lambda: queue.enqueue("a", 1, "30m"), lambda: awaited.enqueue("a", 1, "30m")):
        with pytest.raises(TypeError, match=r"^enqueue\(\)[: ]+.*positional arguments"):
            await call()
    with pytest.raises(TypeError, match=r"^enqueue\(\) got an unexpected keyword argument 'store'$"):
        queue.enqueue("a", 1, store=None)


def test_a_type_error_within_an_operation_is_its_own() -> None:
    def operation(store: object, topic: str) -> None: ...

    error = TypeError("unhashable type: 'list'")
    assert misused(operation, ["a"], {}, error) is error
