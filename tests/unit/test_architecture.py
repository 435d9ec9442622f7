"""What docs/architecture.md lists is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from streamdq.keys import NamespaceKeys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_key_table_is_that_of_the_code() -> None:
    names = NamespaceKeys("NS")
    shard = names.shard("topic", 0)
    built = {
        names.topics,
        names.mover,
        names.deputy,
        names.wake,
        names.secret,
        names.probe,
        names.breakers,
        names.session("HASH"),
    }
    built |= {shard.ready_of("GROUP"), shard.dead_of("GROUP")}
    built |= {getattr(shard, name) for name in shard.__slots__ if name not in ("namespace", "topic", "shard", "prefix")}
    listed = set(re.findall(r"^\| `(\{?NS[^`]+)` \|", PAGE, re.MULTILINE))
    assert listed == {key.replace("{topic:0}", "{topic:shard}") for key in built}


def test_the_scripts_it_names_exist() -> None:
    steps = PAGE.partition("## States")[0]
    named = {
        script
        for row in re.findall(r"^\| [^|]+\| [^|]+\| ([^|]+)\|", steps, re.MULTILINE)
        for script in re.findall(r"`(\w+)`", row)
    }
    assert len(named) > 7
    assert named <= {path.stem for path in (ROOT / "lua").glob("*.lua")}
