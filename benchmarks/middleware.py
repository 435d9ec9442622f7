"""What functions around each attempt cost a worker that has them."""

from __future__ import annotations

from .drain import Drained, drained
from .figures import Figure
from .harness import Bench, in_turn, median, new_jobs, spread

_ROUNDS = 5


def middleware(bench: Bench) -> list[Figure]:
    """Draining with one function around each attempt, and with three, that do nothing."""
    count = bench.jobs(100_000)
    runs: dict[int, list[Drained]] = {0: [], 1: [], 3: []}
    with bench.server() as server:
        rates = in_turn(
            bench.rounds(_ROUNDS),
            *(lambda n=n: drained(server, 1, runs[n], new_jobs(count), role=("around", 100, n)) for n in runs),
        )
    none, one, three = rates
    used = {n: [run.workers_us for run in those] for n, those in runs.items()}
    raw = {"jobs": count, "none": spread(none), "one": spread(one), "three": spread(three), "cpu_us_per_job": used}
    least = {n: min(values) for n, values in used.items()}
    return [
        Figure("middleware", "drain, one around each attempt", median(one), "/s", median(none), "none", raw=raw),
        Figure("middleware", "drain, three around each attempt", median(three), "/s", median(none), "none"),
        Figure("middleware", "CPU time of the worker for a job, none", least[0], "µs"),
        Figure("middleware", "what the first one adds to that", least[1] - least[0], "µs"),
        Figure("middleware", "what two more add", least[3] - least[1], "µs"),
    ]
