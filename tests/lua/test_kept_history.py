"""Each script that writes history keeps as much as the settings say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.lua.shard import Shard
from tests.lua.test_relay import relay, rows
from tests.lua.test_restore import archive

Write = Callable[[Shard, list[str]], object]


def _ahead(shard: Shard, ids: list[str]) -> None:
    shard.enqueue(*ids)
    shard.claim(len(ids))
    shard.clock.advance("60s")
    shard.reclaim()


def _expired(shard: Shard, ids: list[str]) -> None:
    shard.enqueue(*ids, expire="1s")
    shard.clock.advance("2s")
    assert shard.claim(len(ids)).expired == len(ids)


def _cancelled(shard: Shard, ids: list[str]) -> None:
    shard.enqueue(*ids)
    for id in ids:
        assert shard.call("cancel", id) == 1


def _kicked(shard: Shard, ids: list[str]) -> None:
    with _unnoted(shard):
        shard.enqueue(*ids)
        shard.bury(*shard.claim(len(ids)).rows)
    for id in ids:  # of several at once, only those that fit into a call
        assert shard.call("kick", "default", 0, [id]) == 1
    with _unnoted(shard):
        shard.finish(*shard.claim(len(ids)).rows)


def _restored(shard: Shard, ids: list[str]) -> None:
    with _unnoted(shard):
        shard.enqueue(*ids)
        shard.bury(*shard.claim(len(ids)).rows)
    assert shard.call("restore", "default", 1, archive(shard)) == [True] * len(ids)
    with _unnoted(shard):
        shard.finish(*shard.claim(len(ids)).rows)


@contextmanager
def _unnoted(shard: Shard) -> Iterator[None]:
    length, shard.scripts._history = shard.scripts._history, 0
    yield
    shard.scripts._history = length


def _replaced(shard: Shard, ids: list[str]) -> None:
    shard.enqueue(*ids, delay="1s")
    assert shard.call("replace", 1, shard.jobs(*ids, delay="1s")).taken == {}


def _relayed(shard: Shard, ids: list[str]) -> None:
    shard.enqueue(*ids, delay="1s")
    assert relay(shard, rows(*ids, delay=1, replace=True)).codes == [1] * len(ids)


WRITES: dict[str, Write] = {
    "finish": lambda shard, ids: (shard.enqueue(*ids), shard.finish(*shard.claim(len(ids)).rows)),
    "retry": lambda shard, ids: (shard.enqueue(*ids), shard.retry(*shard.claim(len(ids)).rows, delay_ms=60_000)),
    "bury": lambda shard, ids: (shard.enqueue(*ids), shard.bury(*shard.claim(len(ids)).rows)),
    "release": lambda shard, ids: (shard.enqueue(*ids), shard.release(*shard.claim(len(ids)).rows)),
    "reclaim": _ahead,
    "claim": _expired,
    "cancel": _cancelled,
    "kick": _kicked,
    "restore": _restored,
    "replace": _replaced,
    "relay": _relayed,
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITES[request.param]


def test_none_at_length_0(shard: Shard, write: Write) -> None:
    shard.scripts._history = 0
    write(shard, ["i", "j"])
    assert shard.redis("EXISTS", shard.k.history) == 0
    assert not shard.redis("HEXISTS", shard.k.counts, "history")


def test_so_many_as_are_allowed(shard: Shard, write: Write) -> None:
    shard.scripts._history = 10
    shard.checked = False
    for batch in range(3):
        write(shard, [f"{batch}-{n}" for n in range(60)])
    assert 10 <= shard.redis("XLEN", shard.k.history) <= 110, "whole nodes of a hundred go"
    assert shard.redis("HGET", shard.k.counts, "history") == b"180", "all that were written"


def test_all_of_a_batch(shard: Shard, write: Write) -> None:
    write(shard, ["i", "j", "k"])
    assert len(shard.history()) == 3
    assert shard.redis("HGET", shard.k.counts, "history") == b"3"


@pytest.mark.parametrize("dumped", [False, True])
def test_a_row_is_in_a_field_of_that_name_whether_or_not_a_dump_is_registered(shard: Shard, dumped: bool) -> None:
    if dumped:
        shard.call("register_dump", "d", "0-0", 0, "")
    shard.enqueue("i", "j", "k")
    shard.finish(*shard.claim().rows)
    rows = shard.redis("XRANGE", shard.k.history, "-", "+")
    assert [fields[0] for _, fields in rows] == [b"e"] * 3
    assert shard.redis("HGET", shard.k.settings, "history_since") == rows[0][0]


def test_while_a_dump_is_registered_none_is_dropped(shard: Shard) -> None:
    shard.scripts._history = 10
    shard.call("register_dump", "d", "0-0", 0, "")
    shard.checked = False
    ids = [f"j{n}" for n in range(250)]
    shard.enqueue(*ids)
    shard.finish(*shard.claim(250).rows)
    assert shard.redis("XLEN", shard.k.history) == 250
