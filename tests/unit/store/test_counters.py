"""A shard's counters, as the hash has them."""

from __future__ import annotations

import re

import pytest

from streamdq.store.assembly import lua_directory
from streamdq.store.counters import Counters, GroupCounter, ShardCounter, counters_in, group_field

STORED = [
    b"enqueued", b"7", b"sequence", b"9", b"history", b"12", b"detached", b"1", b"waiting:mail", b"2",
    b"waiting:mail.eu", b"3", b"ready:mail", b"4", b"base:mail", b"-1", b"waiting:", b"5",
]  # fmt: skip
FIELDS = {
    GroupCounter.BASE: "base:mail",
    GroupCounter.WAITING: "waiting:mail",
    GroupCounter.READY: "ready:mail",
    GroupCounter.WAITING_FOR_KEY: "waiting_for_key:mail",
    GroupCounter.RUNNING: "running:mail",
    GroupCounter.DONE: "done:mail",
    GroupCounter.DEAD: "dead:mail",
    GroupCounter.CANCELLED: "cancelled:mail",
    GroupCounter.EXPIRED: "expired:mail",
    GroupCounter.RETRIED: "retried:mail",
    GroupCounter.SNOOZED: "snoozed:mail",
    GroupCounter.RECLAIMED: "reclaimed:mail",
    GroupCounter.LOST: "lost:mail",
}


def test_the_fields_of_a_groups_counters() -> None:
    assert {counter: group_field(counter, "mail") for counter in GroupCounter} == FIELDS


def test_counters_of_the_shard_and_of_its_groups() -> None:
    counters = counters_in(STORED)
    assert (counters.of_shard(ShardCounter.ENQUEUED), counters.of_shard(ShardCounter.HISTORY)) == (7, 12)
    assert counters.of_group(GroupCounter.WAITING, "mail") == 2
    assert counters.of_group(GroupCounter.WAITING, "mail.eu") == 3
    assert counters.of_group(GroupCounter.BASE, "mail") == -1
    assert counters.of_groups(GroupCounter.WAITING) == 10


def test_what_never_counted_is_0() -> None:
    counters = counters_in([])
    assert counters == Counters({})
    assert counters.of_shard(ShardCounter.ENQUEUED) == 0
    assert counters.of_group(GroupCounter.LOST, "mail") == 0
    assert counters.of_groups(GroupCounter.READY) == 0


def test_half_a_reply_is_not_read() -> None:
    with pytest.raises(ValueError, match="zip"):
        counters_in(STORED[:-1])


def test_the_scripts_count_by_these_names() -> None:
    text = "".join(path.read_text() for path in lua_directory().rglob("*.lua"))
    in_scripts = set(re.findall(r"'([a-z_]+):' \.\.", text)), set(re.findall(r"counts, '([a-z_]+)',", text))
    assert {str(counter) for counter in GroupCounter} <= in_scripts[0]
    assert {str(counter) for counter in ShardCounter} <= in_scripts[1]
