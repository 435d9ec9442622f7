"""docs/reference/uniqueness.md: what happens to a job whose id another has, or had. Each cell is tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from streamdq.errors import IdTaken, JobExists
from streamdq.job.job import Job, JobState
from streamdq.job.uniqueness import OnConflict
from streamdq.operations.jobs import enqueue as jobs
from streamdq.store.jobs.records import record_in
from tests.lua.shard import START_MS, Shard

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "uniqueness.md").read_text()
POLICIES: tuple[OnConflict, ...] = get_args(OnConflict)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
Rule = Literal["with `unique_for`", "with `unique_for`, after finish", "with `rate_of_id`, used up"]
RULES: dict[Rule | None, dict[str, Any]] = {
    None: {},
    "with `unique_for`": {"unique_for": "1m"},
    "with `unique_for`, after finish": {"unique_for": "1m", "unique_after": "finish"},
    "with `rate_of_id`, used up": {"rate_of_id": "1/m"},
}


def rows() -> dict[str, dict[str, str]]:
    """State of the last job -> what the call says -> outcome."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    head, _, *rest = [[cell.strip() for cell in line] for line in lines]
    return {cells[0]: dict(zip(head[1:], cells[1:], strict=True)) for cells in rest}


TABLE = rows()


def outcome(state: str, rule: Rule | None, on_conflict: OnConflict) -> str:
    """What the table says."""
    ordinary = TABLE[state][f"`{on_conflict}`"]
    changed = TABLE[state][rule.removesuffix(", after finish")] if rule else ""
    policy, _, its = changed.rpartition(": ")
    return its if its and policy in ("", on_conflict) else ordinary


def enqueue(shard: Shard, body: str, on_conflict: OnConflict = "reject", **fields: Any) -> Job:
    op = jobs.enqueue(shard.store, "t", body, id="j", on_conflict=on_conflict, **fields)
    job: Job = shard._step(op)
    return job


# -- how the last job came into its state


def nothing(_: Shard, **__: Any) -> None: ...


def delayed(shard: Shard, **rule: Any) -> None:
    enqueue(shard, "old", delay="10s", **rule)


def delayed_but_due(shard: Shard, **rule: Any) -> None:
    enqueue(shard, "old", delay="10s", **rule)
    shard.clock.advance("11s")


def ready(shard: Shard, **rule: Any) -> None:
    enqueue(shard, "old", **rule)
    shard.move()


def running(shard: Shard, **rule: Any) -> None:
    ready(shard, **rule)
    shard.take()


def in_retry(shard: Shard, **rule: Any) -> None:
    ready(shard, **rule)
    shard.retry(shard.take(), delay_ms=10_000)


def half_done(shard: Shard, **rule: Any) -> None:
    shard.topic(groups=["default", "other"])
    ready(shard, **rule)
    shard.finish(shard.take())


def dead(shard: Shard, **rule: Any) -> None:
    ready(shard, **rule)
    shard.bury(shard.take())


def done(shard: Shard, **rule: Any) -> None:
    ready(shard, **rule)
    shard.finish(shard.take())


def cancelled(shard: Shard, **rule: Any) -> None:
    delayed(shard, **rule)
    assert shard.call("cancel", "j") == 1


def expired(shard: Shard, **rule: Any) -> None:
    enqueue(shard, "old", expire=0, **rule)
    shard.move()
    shard.clock.advance("1s")
    assert shard.claim().expired == 1


def purged(shard: Shard, **rule: Any) -> None:
    dead(shard, **rule)
    assert shard.call("purge", "default", 0, ["j"]) == 1


def long_ago(came: Callable[..., None]) -> Callable[..., None]:
    def there(shard: Shard, **rule: Any) -> None:
        came(shard, **rule)
        shard.clock.advance("1m")

    return there


STATES: dict[str, Callable[..., None]] = {
    "there was none": nothing,
    "delayed": delayed,
    "delayed, but due (paused)": delayed_but_due,
    "ready": ready,
    "running": running,
    "waits for its next attempt": in_retry,
    "done in one group, ready in another": half_done,
    "dead": dead,
    "done": done,
    "cancelled": cancelled,
    "expired": expired,
    "purged": purged,
    "done, and the time is over": long_ago(done),
    "cancelled, and the time is over": long_ago(cancelled),
}


# -- what the outcomes mean


class Tried:
    """One call, and the shard before and after it."""

    def __init__(self, shard: Shard, rule: Rule | None, on_conflict: OnConflict) -> None:
        self.shard = shard
        self.rule, self.on_conflict = rule, on_conflict
        self.before, self.counts_before = shard.get("j"), shard.counts
        self.record_before = self.record
        self.job: Job | None = None
        self.refused: JobExists | None = None
        try:
            self.job = enqueue(shard, "new", on_conflict, delay="1h", **RULES[rule])
        except JobExists as error:
            self.refused = error

    @property
    def record(self) -> bytes | None:
        record: bytes | None = self.shard.redis("HGET", self.shard.k.jobs, "j")
        return record

    def enqueued(self) -> int:
        return self.shard.counts.get("enqueued", 0) - self.counts_before.get("enqueued", 0)

    def cancelled(self) -> int:
        return self.shard.counts.get("cancelled:default", 0) - self.counts_before.get("cancelled:default", 0)

    def nothing_changed(self) -> bool:
        return self.record == self.record_before and self.shard.counts == self.counts_before

    # -- one for each word of the table

    def new(self) -> None:
        assert self.job is not None
        assert self.shard.get("j") is not None
        assert (self.job.body, self.job.due_ms) == ("new", self.shard.clock.now_ms + HOUR_MS)
        assert (self.enqueued(), self.cancelled()) == (1, 0)

    def replaced(self) -> None:
        assert self.job is not None
        assert (self.job.body, self.job.due_ms) == ("new", self.shard.clock.now_ms + HOUR_MS)
        assert self.shard.state("j") == "delayed"
        assert self.enqueued() == 1
        other = self.shard.counts.get("cancelled:other", 0)
        assert self.cancelled() + other == 1

    def refused_(self) -> None:
        assert self.refused is not None
        assert not isinstance(self.refused, IdTaken)
        assert self.nothing_changed()

    def that_job(self) -> None:
        assert self.job is not None
        assert self.record_before is not None
        due_ms = record_in(self.record_before).due_ms if self.before is None else self.before.due_ms
        assert (self.job.body, self.job.due_ms) == ("old", due_ms)
        assert self.nothing_changed()

    def postponed(self) -> None:
        self.stays(self.shard.clock.now_ms + HOUR_MS)

    def new_body(self) -> None:
        assert self.before is not None
        self.stays(self.before.due_ms)

    def stays(self, due_ms: int) -> None:
        """The same job, with the new body."""
        kept = self.shard.get("j")
        assert self.job is not None
        assert self.before is not None
        assert kept is not None
        assert (self.job.body, self.job.created_ms) == ("new", self.before.created_ms)
        assert (kept.body, kept.due_ms, kept.created_ms) == ("new", due_ms, self.before.created_ms)
        assert kept.groups == self.before.groups or due_ms != self.before.due_ms
        assert self.shard.counts == self.counts_before

    def taken(self) -> None:
        if self.on_conflict == "keep":
            assert self.job is not None
            assert (self.job.id, self.job.state, self.job.body) == ("j", JobState.ENDED, None)
            assert self.job.created_ms == START_MS
        else:
            assert isinstance(self.refused, IdTaken)
            began = self.shard.clock.now_ms if self.rule and "after finish" in self.rule else START_MS
            assert self.refused.until_ms == began + MINUTE_MS
        assert self.nothing_changed()


WORDS = {
    "new": Tried.new,
    "refused": Tried.refused_,
    "that job": Tried.that_job,
    "replaced": Tried.replaced,
    "postponed": Tried.postponed,
    "new body": Tried.new_body,
    "taken": Tried.taken,
}


def test_the_table_has_every_state_and_column() -> None:
    assert list(TABLE) == list(STATES)
    columns = dict.fromkeys(rule.removesuffix(", after finish") for rule in RULES if rule)
    assert list(TABLE["done"]) == [*(f"`{policy}`" for policy in POLICIES), *columns]
    assert set(re.findall(r"^- \*([\w ]+)\*: ", PAGE, re.MULTILINE)) == set(WORDS)


@pytest.mark.parametrize("on_conflict", POLICIES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("state", STATES)
def test_a_cell(shard: Shard, state: str, rule: Rule | None, on_conflict: OnConflict) -> None:
    STATES[state](shard, **RULES[rule])
    WORDS[outcome(state, rule, on_conflict)](Tried(shard, rule, on_conflict))
