"""Workloads of jobs that wait for others, for the peers that have them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median

from .driver import TAKEN_OVER_S, WORK_S, Bench, Measured, Worker
from .judge import Delivery, Ran
from .servers import Server


def fan_in(bench: Bench) -> Measured:
    """1,000 jobs, and one that runs after all of them."""
    count = bench.jobs(1_000)
    with bench.started(flows=True) as (_, producer, start):
        if producer.about["no_flow"]:
            return {"none": producer.about["no_flow"]}
        worker = bench.serving(producer, start)
        began_ns = time.time_ns()
        producer.flow(count)
        ran = worker.wait_for(count + 1)
    return {"per_second": count / ((_joined_ns(ran, count) - began_ns) / 1e9), **_delivered(ran, count)}


def chain(bench: Bench) -> Measured:
    """Two jobs, one after the other, again and again."""
    chains = bench.jobs(200)
    with bench.started(flows=True) as (_, producer, start):
        if producer.about["no_flow"]:
            return {"none": producer.about["no_flow"]}
        worker = bench.serving(producer, start)
        for number in range(chains):
            producer.flow(1, first=2 * number)
        ran = worker.wait_for(2 * chains)
    first_runs = {row.number: row.at_ns for row in reversed(ran)}
    pairs = [(first_runs.get(2 * number), first_runs.get(2 * number + 1)) for number in range(chains)]
    gaps = [(after - before) / 1e6 for before, after in pairs if before is not None and after is not None]
    return {"p50_ms": median(gaps) if gaps else 0.0, **asdict(Delivery.of(ran, 2 * chains))}


def results(bench: Bench) -> Measured:
    """A producer enqueues a job, waits for its result, and enqueues the next one."""
    count = bench.jobs(1_000)
    with bench.started(flows=True) as (_, producer, start):
        if producer.about["no_result"]:
            return {"none": producer.about["no_result"]}
        bench.serving(producer, start)
        producer.results(10)
        return {"per_second": count / producer.results(count)}


def worker_killed(bench: Bench) -> Measured:
    """A worker is killed while half of a fan-in of 200 jobs of 50 ms has run, and another is started at once."""

    def kill(_: Server, worker: Worker, start: Callable[..., Worker]) -> Worker:
        worker.kill()
        return start(WORK_S, crash=True)

    return _struck(bench, kill)


def server_killed(bench: Bench) -> Measured:
    """Redis is killed in the same moment, and started again; it appends to a log (everysec)."""

    def kill(server: Server, worker: Worker, _: Callable[..., Worker]) -> Worker:
        server.kill_and_start()
        return worker

    if bench.server_name != "redis":
        return {"none": "only Redis is killed"}
    return _struck(bench, kill)


def _struck(bench: Bench, strike: Callable[[Server, Worker, Callable[..., Worker]], Worker]) -> Measured:
    count = bench.jobs(200)
    with bench.started(flows=True) as (server, producer, start):
        if producer.about["no_flow"]:
            return {"none": producer.about["no_flow"]}
        worker = start(WORK_S, crash=True)
        producer.flow(count)
        worker.wait_for_half(count)
        struck_ns = time.time_ns()
        try:
            ran = strike(server, worker, start).wait_for(count + 1, TAKEN_OVER_S)
        except RuntimeError:  # it has ended without Redis, and is started again, as a supervisor does
            ran = start(WORK_S, crash=True).wait_for(count + 1, TAKEN_OVER_S)
    return {"seconds": (_joined_ns(ran, count) - struck_ns) / 1e9, **_delivered(ran, count)}


def _joined_ns(ran: list[Ran], count: int) -> int:
    """When the last job first ran; if it never did, when the last one of all did."""
    return min((row.at_ns for row in ran if row.number == count), default=max(row.at_ns for row in ran))


def _delivered(ran: list[Ran], count: int) -> Measured:
    """``hangs``: the last job has not run; ``too_soon``: it ran before one of the others had."""
    ends: dict[int, int] = {}
    for row in ran:
        ends.setdefault(row.number, row.at_ns)
    joined = ends.pop(count, None)
    too_soon = joined is not None and (len(ends) < count or joined < max(ends.values()))
    return {**asdict(Delivery.of(ran, count + 1)), "hangs": int(joined is None), "too_soon": int(too_soon)}


FLOW_WORKLOADS: dict[str, Callable[[Bench], Measured]] = {
    "chain": chain,
    "fan_in": fan_in,
    "results": results,
    "fan_in_worker_killed": worker_killed,
    "fan_in_server_killed": server_killed,
}
