"""What the simulated world itself judges: histories with a product that breaks a promise, beside one without."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from streamdq.mover.node_mover import NodeMover
from streamdq.store.scripts import Scripts
from streamdq.worker.runner import Runner
from streamdq.worker.serving import WorkerRun
from tests.simulation.model import Broken
from tests.simulation.world import World


def quiet(horizon_s: float = 4.0) -> World:
    """A short history without troubles, but workers are told to end."""
    world = World(5)
    world.links = False
    world.plan = replace(
        world.plan, workers=1, producers=1, takers=0, operators=0, horizon_s=horizon_s, night_s=0.0, crashes=False,
        network=False, server=False, archive=False, deploys=True,
    )  # fmt: skip
    return world


def test_a_quiet_history_keeps_every_promise() -> None:
    world = quiet()
    world.run()
    assert world.happened["drained"] > 0
    assert world.happened["acknowledged"] > 0


@pytest.mark.thorough
def test_a_worker_that_does_not_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: Runner, _grace_s: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Runner, "drain", never)
    with pytest.raises(Broken, match="did not end"):
        quiet().run()


def test_a_worker_that_goes_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerRun, "_signalled", lambda _: None)
    with pytest.raises(Broken, match="told to end"):
        quiet(8.0).run()  # in a shorter one none is told to


async def _for_ever(*_: Any) -> None:
    await asyncio.Event().wait()


def _lose_wakeup(*_: Any) -> None:
    """Ignores that something has changed."""


@pytest.mark.parametrize(
    "wedge",
    [
        [(WorkerRun, "_claim", _for_ever)],  # the loop that claims jobs hangs
        [(NodeMover, "on_wakeup", _lose_wakeup), (NodeMover, "_walk", _for_ever)],  # wakeups are lost, and nobody looks
    ],
    ids=["claim", "wakeup"],
)
def test_a_worker_that_lives_and_does_nothing_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wedge: list[tuple[Any, str, Any]]
) -> None:
    for target, name, instead in wedge:
        monkeypatch.setattr(target, name, instead)
    with pytest.raises(Broken, match="nothing has started"):
        quiet().run()


@pytest.mark.thorough
def test_a_key_without_an_owner_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Scripts._run

    def forgetful(self: Scripts, name: str, keys: Any, *rest: Any, **options: Any) -> Any:
        if name == "drop_shard":
            keys = (*keys[:3], *[keys[1]] * len(keys[3:]))
        return run(self, name, keys, *rest, **options)

    monkeypatch.setattr(Scripts, "_run", forgetful)
    with pytest.raises(Broken, match="without an owner"):
        quiet().run()
