"""memory://: the same API without a server, for unit tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from streamdq import AsyncQueue, Queue
from streamdq.errors import InvalidInput
from tests.redis.harness import Space, opened


@pytest.fixture
def memory() -> Iterator[Space]:
    with opened(f"memory://{uuid4().hex}") as space:
        yield space


async def test_names_tell_memories_apart() -> None:
    one, other = f"memory://{uuid4().hex}", f"memory://{uuid4().hex}"
    with Queue(one) as queue, Queue(other) as apart, Queue(one) as same:
        queue.enqueue("t", 1, id="a")
        assert same.get("t", "a") is not None
        assert apart.get("t", "a") is None
    async with AsyncQueue(one) as queue_again:
        assert await queue_again.get("t", "a") is not None


def test_without_fakeredis_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(InvalidInput, match=r"pip install 'streamdq\[memory\]'"):
        Queue(f"memory://{uuid4().hex}")
