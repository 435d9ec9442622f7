"""A worker that dies right before or right after any of its calls to Redis: the next one finds everything."""

import json
from dataclasses import asdict

from streamdq import NewJob, Queue
from streamdq.operations.audit import Audit
from streamdq.store.assembly import load_script
from tests.crash.worker_processes import IN_TURNS, WorkerProcesses, left_in
from tests.crash.workers import FAULT_EXIT, Fault, Options, Work
from tests.servers import Server

pytestmark = IN_TURNS

SCRIPTS = ("claim", "finish", "retry", "bury", "release", "remove_consumer", "move", "reclaim")
ONCE = ("remove_consumer", "release")  # a worker that drains calls these once
FAULTS = [
    Fault(call, nth, before)
    for call in (*SCRIPTS, "XREADGROUP")
    for nth in (1, 2)
    for before in (True, False)
    if nth == 1 or call not in ONCE
]
# Each kind ends at different moments, so that one call does not carry them all; between the retries, the worker waits.
RETRY = " ".join(["500ms"] * 8)
"""Two steps more than the work needs: where the machine is busy, an attempt may take longer than its TTR."""
SLOW_MS = 150
WORK = [
    *[Work(ms=SLOW_MS)] * 4,
    *[Work(bury=True, fail=fail) for fail in (0, 1, 2, 4)],
    *[Work(ms=ms, fail=fail) for ms in (0, 100) for fail in (1, 2)],
    Work(fail=6),
]
"""In the end the last one is all that there is: its retries find a worker that waits, however slow it was before."""
DEAD = sum(work.bury for work in WORK)


def namespace(fault: Fault) -> str:
    return f"{fault.call}-{fault.nth}-{'before' if fault.before else 'after'}"


def faulty(fault: Fault) -> Options:
    drains = fault.call in ONCE
    return Options(
        namespace=namespace(fault), concurrency=3, retry=RETRY, burst=True, fault=fault,
        stop_after_starts=3 if drains else 0, ttr="5s" if drains else "1s",  # a drain that comes later has nothing left
    )  # fmt: skip


def load_scripts(server: Server) -> None:
    """So that each is called once, and not once before that to be told that Redis does not have it."""
    with server.client() as client:
        for name in SCRIPTS:
            client.script_load(load_script(name).source)


def fill(processes: WorkerProcesses, fault: Fault) -> None:
    name = namespace(fault)
    with Queue(processes.server.url, name) as queue:
        queue.enqueue_many("work", [NewJob(asdict(work), id=f"{name}-{i}") for i, work in enumerate(WORK)])


def outcome(processes: WorkerProcesses, name: str) -> tuple[Audit, dict[str, int]]:
    """The books, and what is left once the dead letters are gone."""
    with Queue(processes.server.url, name) as queue:
        audit = queue.audit()
        queue.purge("work", all=True)
    return audit, left_in(processes.server, "work", namespace=name)


def test_a_crash_at_any_call_loses_nothing(processes: WorkerProcesses) -> None:
    load_scripts(processes.server)
    names = [namespace(fault) for fault in FAULTS]
    for fault in FAULTS:
        fill(processes, fault)
    crashed = processes.start(*map(faulty, FAULTS), grace_s=0, lease_s=0.5)
    assert crashed.wait() == 0
    codes = json.loads(crashed.output.splitlines()[-1])
    assert dict(zip(names, codes, strict=True)) == dict.fromkeys(names, FAULT_EXIT), "each has met its fault"

    clean = processes.start(*[Options(namespace=name, retry=RETRY, burst=True) for name in names], lease_s=0.5)
    assert clean.wait() == 0
    ended = processes.journal.ids("end")
    for name in names:
        audit, left = outcome(processes, name)
        assert audit.balanced, name
        (account,) = audit.balances
        assert (audit.left, account.done, account.dead) == (0, len(WORK) - DEAD, DEAD), name
        assert left == {}, name
        assert {id for id in ended if id.startswith(name)} == {
            f"{name}-{i}" for i, work in enumerate(WORK) if not work.bury
        }, "lost"
