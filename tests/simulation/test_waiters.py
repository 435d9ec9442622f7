"""Waits for results in the simulation, and that its judge notices one that lies, comes late or leaves something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamdq.operations.results.waits import Waits
from streamdq.store.jobs.results import EndState, StoredResult
from tests.simulation.model import Broken
from tests.simulation.world import World

SEED = 7100001
"""One that keeps results."""


def quiet() -> World:
    """A short history without troubles."""
    world = World(SEED)
    world.plan = replace(
        world.plan, topics=1, workers=1, producers=2, takers=0, operators=0, horizon_s=4.0, night_s=0.0, crashes=False,
        network=False, server=False, archive=False, deploys=False, has_keys=False, unique=False, vandal=False,
    )  # fmt: skip
    return world


def test_waits_end_with_what_was_returned() -> None:
    world = quiet()
    world.run()
    assert world.happened["result: done"] > 0
    assert world.happened["result: ResultTimeout"] > 0


def lie(outcome: EndState, payload: bytes) -> Callable[..., Any]:
    async def kept(_: Waits, _wanted: Any, _timeout_s: float) -> tuple[str, StoredResult]:
        await asyncio.sleep(0.1)
        return "default", StoredResult(outcome, payload)

    return kept


@pytest.mark.parametrize("outcome", [EndState.DONE, EndState.CANCELLED, EndState.EXPIRED])
def test_a_wait_that_lies_is_noticed(monkeypatch: pytest.MonkeyPatch, outcome: EndState) -> None:
    monkeypatch.setattr(Waits, "kept", lie(outcome, b'"made up"'))
    with pytest.raises(Broken, match="which nothing showed"):
        quiet().run()


@pytest.mark.thorough
def test_a_wait_that_misses_its_deadline_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Waits.kept

    async def late(self: Waits, wanted: Any, timeout_s: float) -> Any:
        await asyncio.sleep(timeout_s + 7.0)
        return await kept(self, wanted, timeout_s)

    monkeypatch.setattr(Waits, "kept", late)
    with pytest.raises(Broken, match="after its deadline"):
        quiet().run()


@pytest.mark.thorough
def test_a_result_that_stays_for_ever_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = quiet()
    apply = world.store.apply

    def persistent(fields: Any) -> Any:
        reply = apply(fields)
        if fields[0] == b"GET" and b":result:" in fields[1]:
            apply((b"PERSIST", fields[1]))
        return reply

    monkeypatch.setattr(world.store, "apply", persistent)
    with pytest.raises(Broken, match="without an owner"):
        world.run()
