"""Runs seeds, in several processes, and says what came of them."""

from __future__ import annotations

import logging
import re
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from .world import World


@dataclass
class Report:
    """What came of one seed."""

    seed: int
    calls: int
    simulated_s: float
    happened: Counter[str]
    broken: str = ""  # the promise that was, and where
    story: list[str] = field(default_factory=list)  # the calls that name the job


def run_seed(seed: int) -> Report:
    logging.disable(logging.CRITICAL)
    world = World(seed)
    broken, story = "", []
    try:
        world.run()
    except Exception as error:
        lines = traceback.format_exception_only(error)
        broken = f"{lines[-1].strip()}\n  {world.plan}"
        if numbers := re.findall(r"job (\d+)|place of (\d+)", str(error)):
            story = [str(call) for call in world.model.story(int(numbers[-1][0] or numbers[-1][1]))]
    return Report(seed, world.network.calls, world.loop.passed_s, world.happened, broken, story)


def run_seeds(seeds: Iterable[int], processes: int) -> Iterator[Report]:
    """In the order of the seeds, any number of them: a process is never more than a few seeds ahead."""
    remaining = iter(seeds)
    with ProcessPoolExecutor(processes) as pool:
        running = [pool.submit(run_seed, seed) for seed in islice(remaining, 4 * processes)]
        while running:
            yield running.pop(0).result()
            running += [pool.submit(run_seed, seed) for seed in islice(remaining, 1)]
