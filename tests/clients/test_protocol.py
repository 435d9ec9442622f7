"""The protocol's page: its tables have all keys and all scripts, and its example works."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from streamdq.errors import FORMAT
from streamdq.job.job import JobState
from streamdq.keys import NamespaceKeys
from streamdq.store.assembly import load_script
from streamdq.store.history.rows import FIELDS
from tests.servers import Server
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "protocol.md").read_text()
HEADERS = {path.stem: path.read_text().partition("\nlocal ")[0] for path in (ROOT / "lua").glob("*.lua")}


def section(title: str) -> str:
    found = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def called() -> dict[str, list[str]]:
    """The scripts that clients call: the cells of each one's row."""
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", section("Scripts that clients call"), re.MULTILINE)
    return {name: [cell.strip() for cell in re.split(r"(?<!\\)\|", cells)] for name, cells in rows}


def test_each_key_is_on_the_page() -> None:
    names = NamespaceKeys("NS")
    shard = names.shard("topic", 0)
    no_keys = {"namespace", "topic", "shard", "prefix", "session"}
    of_shard = {getattr(shard, name) for name in set(shard.__slots__) - no_keys}
    of_shard |= {shard.ready_of("GROUP"), shard.dead_of("GROUP"), shard.ranked_of("GROUP")}
    own = {name for name, value in vars(NamespaceKeys).items() if isinstance(value, cached_property)}
    of_namespace = {getattr(names, name) for name in own}
    of_namespace |= {names.session("HASH"), names.sessions("HASH"), names.hung("CONSUMER")}
    listed = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.+?) \|", section("Keys"), re.MULTILINE)))
    assert len(listed) == len(set(listed))
    assert set(listed) == of_namespace | {key.removeprefix(shard.prefix) for key in of_shard}


def test_each_script_is_on_the_page_once() -> None:
    own = re.findall(r"`(\w+)`", section("Scripts of streamdq's own processes"))
    assert len(called()) > 15
    assert sorted([*called(), *own]) == sorted(HEADERS)


@pytest.mark.parametrize("name", called())
def test_a_scripts_row_has_the_keys_and_arguments_of_its_header(name: str) -> None:
    keys, arguments, _ = called()[name]
    declared = load_script(name).declared
    of_groups = {"own": "ready:GROUP", "dead": "dead:GROUP"}
    names = [of_groups.get(key, key) for key in (*declared.named, *declared.of_each_group, *declared.if_given)]
    assert re.sub(r"[\[\]…]", "", keys).split() == names
    numbers = re.findall(r"^-- ARGV\[(\d+)(\.\.)?\]([^\n]*)", HEADERS[name], re.MULTILINE)
    required = [number for number, rest, text in numbers if not rest and "or none" not in text]
    fixed = re.split(r",? ?then ", arguments)[0]
    assert len(fixed.split(", ")) == len(required)
    assert ("then " in arguments) == any(rest for _, rest, _ in numbers)


def test_it_tells_of_the_format_and_the_history_as_they_are() -> None:
    assert f"a [format](../upgrading.md#formats), now {FORMAT}." in PAGE
    row = next(line for line in PAGE.splitlines() if line.startswith("EVENT \\x1f"))
    assert row.lower().split(" \\x1f ") == list(FIELDS[:-1])
    assert f"{len(FIELDS)} fields with `\\x1f`" in PAGE


@pytest.fixture
def redis_server(newest: Server) -> Server:
    return newest


def example(server: Server) -> dict[str, Any]:
    code = re.findall(r"^```python\n(.+?)^```$", section("An example"), re.MULTILINE | re.DOTALL)
    assert len(code) == 1
    names: dict[str, Any] = {}
    exec(code[0].replace("redis://localhost:6379/0", server.url).replace('"lua"', repr(str(ROOT / "lua"))), names)
    return names


def test_the_example_enqueues_and_works_beside_streamdq(redis_server: Server) -> None:
    with Queue(redis_server.url, "streamdq") as queue:
        queue.configure("order.close", shards=2, retry="0")
        client = example(redis_server)
        ids = [f"order-{number}" for number in range(20)]
        assert all(client["enqueue"](id, {"order": id}, 0) for id in ids)
        assert client["enqueue"]("order-0", {"order": "another"}, 0) is False
        client["enqueue"]("later", {"order": "later"}, 3_600_000)
        assert queue.enqueue("order.close", {"order": "own"}, id="own").id == "own"

        later = queue.get("order.close", "later")
        assert later is not None
        assert (later.state, later.body) == (JobState.DELAYED, {"order": "later"})
        claim = queue.take("order.close", timeout=60)
        assert claim
        claim.fail("once more")

        seen: dict[str, Any] = {}

        def work() -> bool:
            for shard in (0, 1):
                client["work"](shard, seen.__setitem__)
            return len(seen) == 21

        until(work, "all jobs are done")
        assert seen == {id: {"order": id} for id in [*ids, "own"]}
        audit = queue.audit("order.close")
        assert audit.balanced
        assert (audit.balances[0].done, audit.left) == (21, 1)
        rows = queue.history("order.close").rows
        assert sorted(row.id for row in rows if row.event == "done") == sorted(seen)
        assert {row.attempt for row in rows if row.id == claim.job.id} == {1, 2}
        client["client"].close()
