"""Redis goes away and comes back under running workers and a client that goes on putting jobs in."""

import signal

from tests.crash.producer import RUN, produce_through
from tests.crash.worker_processes import IN_TURNS, WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS


def test_nothing_is_lost_that_a_stopped_redis_has_accepted(persistent: WorkerProcesses) -> None:
    """One that is killed: test_killed.py."""
    processes = persistent
    accepted = produce_through(processes, "stopped")
    audit = processes.emptied()
    assert set(accepted) <= processes.journal.ids("end"), "lost"
    # An enqueue whose reply was lost is repeated: when its job had ended meanwhile, that puts it in once more.
    twice_in = sum(balance.done for balance in audit.balances) - len(accepted)
    again = sum(count - 1 for count in processes.journal.count("start").values())
    assert 0 <= twice_in <= 1
    assert again <= twice_in + sum(processes.counts(topic).reclaimed for topic in RUN.topics)
    for topic in RUN.topics:
        assert left_in(processes.server, topic) == {}


def test_workers_reconnect_after_a_long_outage(persistent: WorkerProcesses) -> None:
    processes = persistent
    worker = processes.serving(processes.start(RUN))
    processes.server.stop()
    until(lambda: worker.output.count("loop failed") >= 4, "it has tried in vain")
    processes.server.start()
    ids = processes.fill(50, Work(), topic="now") + processes.fill(50, Work(), topic="later", delay="100ms")
    until(lambda: processes.journal.ids("end") == set(ids), "it is at work again")
    assert set(processes.journal.count("start").values()) == {1}
    processes.emptied()


def test_a_drain_without_redis_ends_all_the_same(persistent: WorkerProcesses) -> None:
    processes = persistent
    processes.put("job", Work(ms=300), topic="now")
    worker = processes.start(RUN, lease_s=0.5, call_timeout_s=0.5)
    processes.started("job")
    processes.server.stop()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    processes.server.start()
    processes.start(RUN, lease_s=0.5)
    processes.started("job", attempts=2)
    processes.emptied()


def test_redis_restarted_while_workers_hold_long_jobs(persistent: WorkerProcesses) -> None:
    processes = persistent
    ids = processes.fill(20, Work(ms=700), topic="now")
    processes.start(Options(topics=("now",), ttr="1h", concurrency=20))
    for id in ids:
        processes.started(id)
    processes.server.restart()
    processes.emptied()
    assert processes.journal.ids("end") == set(ids)
    assert set(processes.journal.count("start").values()) == {1}, "finished by those who had begun"
