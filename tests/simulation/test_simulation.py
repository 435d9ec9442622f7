"""Simulated histories: the same each time, wide enough, and without a broken promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.calls import scripts
from tests.simulation.coverage import EXPECTED, RARE, UNREACHED, never_happened

ROOT = Path(__file__).parents[2]
_HANGS_S = 1800
"""A history computes for as long as the machine needs; its own judge tells what hangs in it."""
pytestmark = pytest.mark.timeout(_HANGS_S + 60)
WIDE = (
    3085, 3611, 5172, 7008, 7009, 7014, 7017, 7096, 1795500000002, 1795500000011, 1795500000025, 1795500000029,
    1795500000036, 1795500000050, 1795500000052, 1795500000064, 1795500000069, 7000062, 7000074,
    8000005, 8000090, 4130734,
)  # fmt: skip
"""These have nearly everything in them that can happen: chosen from 89, one by one, by what the others lacked."""

FOUND = {
    13: "a kick that came after its topic had been deleted made the shard's counters anew",
    1795354507039: "an outcome whose claim a failover had lost acknowledged the entry that its consumer had read again",
    1795407835063: "a call that hands entries back was cancelled when there was room, and came after their claim",
    3002: "a key over its limit, which had been lowered, gave places to others when the clock was set back",
    3046: "a job whose retry had held its key was too late for its next attempt, as the key had been paused",
    1795416850087: "after the clock was set back, what was kept of an id could not be read, and no job could end",
    1795473012116: "the judge forgot that a group which joins again has nothing left of an archived job",
    1795476311078: "the judge took a job for ended that was replaced while it waited in a group which had joined again",
    977699659535128: "the judge forgot that a job from before the limit of its key had started, and is made up for",
    20261124075: "the judge looked in the archive for the body that a job got for its other groups",
    20261124239: "who made shards while Redis was emptied left two behind of which the registry did not know",
    20261125093: "the judge took the time at which a job came back from the archive for its due time",
    20261126059: "the judge forgot that the outcome of a claim which Redis lost ends the next one of that consumer",
    20261127558: "the judge lost patience with handlers that hang, one after the other, for a TTR of a minute",
    20261124491: "the same, where the topic had been deleted and made anew",
    846215747445095: "the same, where the process that made the shards was killed before it could tell",
    911720614970017: "resharding seemed complete though its jobs were not at home, as a reply of the walk was lost",
    747091791756021: "the judge forgot that a late request takes entries along for a consumer that has left",
    16: "the result of a later job was kept for those that had waited for an earlier one with its id",
    146: "results that were kept for others outlived the note of which groups keep any, in a topic that was deleted",
    924699935764021: "the judge forgot that a group which joins again may get a job once more that was archived before",
    593588523506018: "the judge forgot that a topic deleted by force takes along who waited for its jobs",
    95000100: "the judge took a job for done that was replaced while a later group had yet to do it",
    888013: "the judge forgot that a job may come back from the archive to another shard than it had left",
    52100074: "the judge forgot that those that wait for such a job don't hear of it any more, and stay blocked",
    52100204: "the judge forgot that a job which comes back from the archive to a new topic has lost its followers",
    52100211: "the judge forgot that a job which waits can be aborted in all its groups",
    52100245: "the judge forgot that a job may still be open in a group which came after it, and be replaced",
    52100158: "the judge forgot that a job which a group had given up has failed, though the group has left since",
    52100054: "the judge forgot that a job that is late may be cancelled as well as given up",
    52100101: "the judge forgot that an aborted job gives the place of its key free when it is lost with its consumer",
    1795978985004: "the judge forgot that an abort which names a nonce is not about a later job with the id",
    1795979377001: "a job in the archive of one group that was aborted in another one counted as done after all, and a "
    "dead job of a flow that was forgotten seemed to belong to a later flow, when it came back from the archive",
    734591968808027: "the judge forgot that a group which joins while a cancelled attempt still runs may get the job",
    734591968808006: "the judge forgot that an aborted attempt may have ended unseen when the job is aborted once more",
    1097310206153014: "the judge forgot that a group which joins again may leave two rows of a job in the archive",
    20261129014: "the judge forgot that a job may wait in a group that joined after it, and be replaced there",
    155692423741027: "the judge forgot that an attempt whose stream was deleted goes on when its consumer leaves",
    920001860: "the judge forgot that a topic which is deleted forgets which jobs its flows have added",
    430712400779020: "the first call of a claim, which came after a second one and after the topic had been paused, "
    "handed back a job that ran by the second answer",
    940003053: "the judge took a job that was added to a flow for put in, which Redis had lost when it was restarted",
    940004157: "the same, where two jobs had added it",
    832623802163004: "a job had been aborted for one group before another one began to wait for it, which "
    "started when the other group had done it",
}
"""Seeds that broke a promise once, or seemed to."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the clock and the order of sets are its own, too."""
    command = [sys.executable, "-m", "tests.simulation", "--processes", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=_HANGS_S)


@pytest.mark.thorough
def test_they_keep_every_promise_and_have_everything_in_them() -> None:
    done = simulate("--only", *map(str, WIDE))
    assert done.returncode == 0, done.stdout
    counted = (line.strip().partition(" ") for line in done.stdout.splitlines())
    missing = set(never_happened({what for _, _, what in counted})) - RARE
    assert not missing, f"never happened: {sorted(missing)}"


def test_each_script_is_called_or_there_is_a_reason_why_not() -> None:
    called = {what.removeprefix("call ") for what in EXPECTED if what.startswith("call ")}
    assert called | UNREACHED.keys() == set(scripts().values())
    assert EXPECTED >= RARE


@pytest.mark.thorough
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(seed: int) -> None:
    done = simulate("--first", str(seed), "--seeds", "1")
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_a_seed_is_one_history() -> None:
    first, second = (simulate("--first", "10", "--seeds", "2").stdout for _ in range(2))
    assert first.splitlines()[:-2] == second.splitlines()[:-2]
