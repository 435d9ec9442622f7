"""If a script ended half way all the same, no job would be lost in silence: the audit tells of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lua.cut_short import missed
from tests.lua.shard import Shard
from tests.servers import Server


@pytest.fixture
def shard(redis_server: Server) -> Iterator[Shard]:
    """Each script that writes ends after each of its writes at first; what that did is undone."""
    opened = Shard(f"{redis_server.url}#cut")
    yield opened
    opened.close()


@pytest.mark.thorough
def test_the_way_of_a_job(shard: Shard) -> None:
    shard.enqueue("a", "b", delay="1s")
    shard.clock.advance("1s")
    shard.move()
    a, b = shard.claim().rows
    shard.finish(a)
    shard.retry(b, delay_ms=0)
    shard.move()
    shard.bury(shard.take())
    assert shard.call("kick", "default", 10, []) == 1
    shard.release(shard.take())
    assert shard.call("reschedule", "b", "+5")
    shard.call("replace", 1, shard.jobs("b", delay="1h"))
    assert shard.call("cancel", "b") == 1
    assert shard.state("b") == "gone"
    names = "enqueue move claim finish retry bury kick release reschedule replace cancel"
    assert {*names.split()} <= shard.cuts.keys()
    assert sum(shard.cuts.values()) > 60


def test_what_has_to_be_reported() -> None:
    lost = ["b'j' is in no stream of default", "running of default: 1, counted 2"]
    assert missed(lost, [b"j"]) == lost[:1]
    assert missed(lost, [b"other"]) == []
