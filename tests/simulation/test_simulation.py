"""Simulated histories: the same each time, wide enough, and without a broken promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDE = 40
"""So many seeds have everything in them that can happen."""

SCRIPTS = (
    "bury", "cancel", "claim", "configure_shard", "enqueue", "finish", "get", "kick", "leave_group", "lease", "move",
    "permit", "purge", "read_signs", "reclaim", "register_topic", "release", "replace", "reschedule", "retry", "sign",
    "stats", "take_over", "touch",
)  # fmt: skip
HAPPENS = {
    *(f"call {script}" for script in SCRIPTS),
    *(f"handler {what}" for what in ("ok", "raise", "bury", "snooze", "touch", "hang")),
    *(f"redis {what}" for what in ("restart", "fail over", "flush", "flush scripts", "clock")),
    *(f"network {what}" for what in ("lossy", "slow", "cut", "fine")),
    *("killed", "stopped", "refused", "request lost", "reply lost", "late", "acknowledged"),
}

FOUND = {
    24: "a claim that is repeated, as its reply was lost, took the job from who had it",
    37: "the same, with an attempt lost",
}
"""Seeds that broke a promise once."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the clock and the order of sets are its own, too."""
    command = [sys.executable, "-m", "tests.simulation", "--processes", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=280)


def test_they_keep_every_promise_and_have_everything_in_them() -> None:
    done = simulate("--first", "1", "--seeds", str(WIDE))
    assert done.returncode == 0, done.stdout
    counted = (line.strip().partition(" ") for line in done.stdout.splitlines())
    assert {what for _, _, what in counted} >= HAPPENS


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(seed: int) -> None:
    done = simulate("--first", str(seed), "--seeds", "1")
    assert done.returncode == 0, done.stdout


def test_a_seed_is_one_history() -> None:
    first, second = (simulate("--first", "7", "--seeds", "2").stdout for _ in range(2))
    assert first.splitlines()[:-1] == second.splitlines()[:-1]
