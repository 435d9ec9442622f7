"""rights: which commands this user may not run, found out before any script is called."""

from __future__ import annotations

import re

import pytest

from streamdq.store.assembly import lua_directory
from streamdq.store.rights import COMMANDS, OUTSIDE_SCRIPTS, TRIALS
from tests.lua.shard import Shard


def rights(shard: Shard) -> list[str]:
    found: list[str] = shard.run(shard.scripts.rights(shard.k.jobs))
    return found


def test_who_may_all_lacks_nothing_and_nothing_is_left(shard: Shard) -> None:
    if shard.is_fake:
        pytest.skip("it is not called there, and fakeredis has no rights")
    before = shard.redis("DBSIZE")
    assert rights(shard) == []
    assert shard.redis("DBSIZE") == before
    assert shard.redis("EXISTS", shard.k.absent) == 0


def test_each_command_of_a_script_is_tried() -> None:
    called = {
        name.lower()
        for path in lua_directory().rglob("*.lua")
        for name in re.findall(r"redis\.p?call\('(\w+)'", path.read_text())
    }
    assert called <= {*TRIALS, "hsetnx"}
    assert {*TRIALS, "hsetnx"} == {*COMMANDS} - {*OUTSIDE_SCRIPTS}
    assert all(trial.split()[0] == name for name, trial in TRIALS.items())
