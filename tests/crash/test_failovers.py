"""A round of each failover of `failovers.py`: what a replica has confirmed outlives the primary."""

from __future__ import annotations

import pytest

from tests.conftest import BINARIES, RECENT
from tests.crash.failovers import KINDS, Tally
from tests.crash.worker_processes import IN_TURNS

pytestmark = IN_TURNS


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_replica_confirmed_is_not_lost(kind: str) -> None:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    tally = Tally()
    KINDS[kind](RECENT or BINARIES[-1], 1, tally)
    assert tally.confirmed["replicas:1"] > 0
    assert tally.lost["replicas:1"] == 0
    if kind == "partition":  # which lasts seconds: what the primary confirmed is lost
        assert tally.lost["memory"] > 0
