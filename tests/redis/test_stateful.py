"""Any order of calls: the engine against a plain model of it, on each server, by a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from streamdq.job.job import JobState
from streamdq.operations import audit, topics
from tests.lua.shard import START_MS, Shard
from tests.redis.model import TTR_MS, Model, ModelClaim, ModelJob, Standing
from tests.servers import Server

IDS = st.sampled_from(["j0", "j1", "j2", "j3", "j4"])
DELAYS_MS = st.sampled_from([0, 1, 1000, 1000, 20_000])
CONSUMERS = st.sampled_from(["one", "two"])
ALL = 500
WEIGHTS = {
    "advance": 4, "move": 5, "enqueue": 7, "cancel": 1, "reschedule": 2, "claim_all": 9, "read_ahead": 2,
    "claim_what_was_read": 4, "end": 8, "retry": 4, "touch": 2, "reclaim": 4, "leave": 1, "kick": 2, "purge": 2,
    "pause": 1, "add_group": 1, "remove_group": 1,
}  # fmt: skip
OUTCOMES = {
    "claim", "claim what was read", "hand back what was read",
    "expire", "finish", "retry", "snooze", "bury", "release", "touch", "refuse",
    "reclaim", "hand over", "cancel", "not cancel", "reschedule", "not reschedule", "replace", "taken", "kick", "purge",
    "leave", "add group", "remove group",
}  # fmt: skip


def of(claim: ModelClaim) -> dict[str, str]:
    """Whose it is."""
    return {"group": claim.group, "consumer": claim.consumer}


class Engine(RuleBasedStateMachine):
    """Every rule calls the engine and the model; after each, both must say the same."""

    url = ""
    happened: ClassVar[Counter[str]] = Counter()
    draw: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(self.url)
        self.shard.redis("FLUSHALL")
        self.shard.checked = False
        self.shard.topics.known.clear()
        self.clock = self.shard.clock
        self.model = Model(START_MS, ["g0"])
        self.shard.topic(ttr=TTR_MS / 1000, groups=["g0"])
        self.claims: list[ModelClaim] = []
        self.unclaimed: list[tuple[str, str, ModelJob, Standing]] = []  # group, consumer, job, delivery: only read
        self.read: list[tuple[list[bytes | str], list[tuple[str, str, ModelJob, Standing]]]] = []  # with their entries
        self.made = 1

    def teardown(self) -> None:
        self.shard.close()

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One call. Chosen by weight: rules of their own would each be drawn as often as any other, and most runs would
        cancel what was never there.
        """
        self.draw = data.draw
        served = [claim for claim in self.claims if claim.group in self.model.groups]
        dead = any(self.model.dead(group) for group in self.model.groups)
        possible = {
            "kick": 3 * dead, "purge": 3 * dead, "leave": 2 * bool(served),
            "pause": 4 if self.model.paused else 1,
            "end": 8 * bool(served), "retry": 4 * bool(served), "touch": 2 * bool(served),
            "claim_what_was_read": 4 * any(unclaimed[0][0] in self.model.groups for _, unclaimed in self.read),
            "add_group": (0, 5, 2, 0)[len(self.model.groups)], "remove_group": len(self.model.groups) > 1,
        }  # fmt: skip
        names = [name for name, weight in WEIGHTS.items() for _ in range(possible.get(name, weight))]
        getattr(self, self.draw(st.sampled_from(names), "step"))()

    # -- choosing

    def group(self) -> str:
        return self.draw(st.sampled_from(self.model.groups), "group")

    def some_claims(self) -> list[ModelClaim]:
        """Of one group, held or not; each once."""
        group = self.draw(st.sampled_from(sorted({c.group for c in self.claims} & set(self.model.groups))), "group")
        mine = [claim for claim in self.claims if claim.group == group][-6:]
        picked = self.draw(st.lists(st.integers(0, len(mine) - 1), min_size=1, max_size=3, unique=True), "claims")
        return [mine[i] for i in picked]

    # -- time

    def advance(self) -> None:
        ms = self.draw(st.sampled_from([1, 1000, 5000, TTR_MS]), "ms")
        self.clock.advance(ms / 1000)
        self.model.now_ms += ms

    def move(self) -> None:
        limit = self.draw(st.sampled_from([1, ALL]), "limit")
        while self.shard.move(limit).moved:
            pass
        self.model.move()

    # -- producers

    def enqueue(self) -> None:
        ids = self.draw(st.lists(IDS, min_size=1, max_size=4, unique=True), "ids")
        delay_ms, replace = (
            self.draw(DELAYS_MS, "delay_ms"),
            self.draw(st.sampled_from([False, False, True]), "replace"),
        )
        ttr_ms = self.draw(st.sampled_from([None, None, 1000, 10 * TTR_MS]), "ttr_ms")
        expire_ms = self.draw(st.sampled_from([None, None, None, None, 0, 5000]), "expire_ms")
        ttr, expire = (None if ms is None else ms / 1000 for ms in (ttr_ms, expire_ms))
        jobs = self.shard.jobs(*ids, delay=delay_ms / 1000, ttr=ttr, expire=expire)
        before = self.shard.redis("HMGET", self.shard.k.jobs, *ids)
        taken = self.shard.call("replace" if replace else "enqueue", 1, jobs).taken
        model = self.model
        straight = not replace and delay_ms == 0 and not model.paused and not model.due_now()
        for i, id in enumerate(ids):
            if id in model.jobs and not (replace and model.replaceable(id)):
                assert taken.pop(i) == before[i]
                self.happened["taken"] += 1
                continue
            if id in model.jobs:
                assert model.cancel(id) == 1
                self.happened["replace"] += 1
            model.enqueue(id, model.now_ms + delay_ms, ttr_ms, expire_ms, straight)
        assert taken == {}

    def cancel(self) -> None:
        id = self.draw(IDS, "id")
        expected = self.model.cancel(id)
        assert self.shard.call("cancel", id) == expected
        self.happened["cancel" if expected == 1 else "not cancel"] += 1

    def reschedule(self) -> None:
        id, delay_ms = self.draw(IDS, "id"), self.draw(DELAYS_MS, "delay_ms")
        expected = self.model.reschedule(id, self.model.now_ms + delay_ms)
        assert self.shard.call("reschedule", id, f"+{delay_ms}") == expected
        self.happened["reschedule" if expected == 1 else "not reschedule"] += 1

    # -- consumers

    def took(self, rows: list[Any], group: str, consumer: str, candidates: list[ModelJob]) -> None:
        """The rows that a claim of the candidates returned."""
        ids = [row.id.decode() for row in rows]
        assert len(set(ids)) == len(ids)
        places = {job.id: job.moved for job in candidates if job.groups[group].kind == "fresh"}
        first = [places[id] for id in ids if id in places]
        assert first == sorted(first)
        became = {job.id: self.model.claim(job, group) for job in candidates}
        assert set(ids) == {id for id, kind in became.items() if kind == "running"}
        self.happened["claim"] += len(rows)
        self.happened["expire"] += sum(kind == "expired" for kind in became.values())
        for row in rows:
            job = self.model.jobs[row.id.decode()]
            standing = job.groups[group]
            assert standing.due_ms <= self.model.now_ms
            assert int(row.past.split(b"|")[0].partition(b"+")[0] or 1) == standing.attempt
            self.claims.append(ModelClaim(group, consumer, job, standing, row))

    def only_read(self, group: str, consumer: str | None = None) -> list[ModelJob]:
        """Jobs of the group that are ready and that a consumer (None: any) has read already."""
        return [
            job for name, who, job, delivery in self.unclaimed
            if name == group and consumer in (None, who)
            and self.model.jobs.get(job.id) is job and job.groups[group] is delivery
        ]  # fmt: skip

    def claim_all(self) -> None:
        group, consumer = self.group(), self.draw(CONSUMERS, "consumer")
        reply = self.shard.claim(ALL, group, consumer)
        assert reply.paused == self.model.paused
        read = self.only_read(group)
        candidates = [] if self.model.paused else [job for job in self.model.ready(group) if job not in read]
        self.took(reply.rows, group, consumer, candidates)

    def read_ahead(self) -> None:
        """As a blocked read does: pending, not claimed yet."""
        group, consumer = self.group(), self.draw(CONSUMERS, "consumer")
        entries: list[bytes | str] = []
        for kind, stream in (("g", self.shard.k.ready_of(group)), ("m", self.shard.k.ready)):
            command = ("XREADGROUP", "GROUP", group, consumer, "COUNT", 100, "STREAMS", stream, ">")
            reply = self.shard.redis(*command)
            for entry, fields in reply[0][1] if reply else []:
                entries += [kind, entry, fields[1]]
        known = self.only_read(group)
        new = [job for job in self.model.ready(group) if job not in known]
        unclaimed = [(group, consumer, job, job.groups[group]) for job in new]
        self.unclaimed += unclaimed
        if unclaimed:
            self.read.append((entries, unclaimed))

    def claim_what_was_read(self) -> None:
        choices = [i for i, (_, unclaimed) in enumerate(self.read) if unclaimed[0][0] in self.model.groups]
        entries, unclaimed = self.read.pop(self.draw(st.sampled_from(choices), "read"))
        group, consumer, _, _ = unclaimed[0]
        room = self.draw(st.sampled_from([0, 100]), "room")
        rows = self.shard.claim(room, group, consumer, entries).rows
        there = self.only_read(group)
        candidates = [job for _, _, job, delivery in unclaimed if job in there and job.groups[group] is delivery]
        if room:
            if not self.model.paused:
                known = self.only_read(group)
                candidates += [job for job in self.model.ready(group) if job not in known]
            self.happened["claim what was read"] += len(rows)
            self.took(rows, group, consumer, candidates)
            return
        assert rows == []
        self.happened["hand back what was read"] += len(candidates)
        for job in candidates:
            self.model.hand_over(job, group)

    def held(self, what: str, reply: Any, claims: list[ModelClaim]) -> list[ModelClaim]:
        """Exactly the claims that no longer hold, or that are not of the first one's consumer, who sent the batch, must
        be refused; returns the others.
        """
        accepted = [claim for claim in claims if self.model.held(claim) and claim.consumer == claims[0].consumer]
        assert reply.stale == {i for i, claim in enumerate(claims) if claim not in accepted}
        self.happened["refuse"] += len(reply.stale)
        self.happened[what] += len(accepted)
        return accepted

    def end(self) -> None:
        how, claims = self.draw(st.sampled_from(["finish", "bury", "release"]), "how"), self.some_claims()
        reply = getattr(self.shard, how)(*(claim.row for claim in claims), **of(claims[0]))
        for claim in self.held(how, reply, claims):
            getattr(self.model, how)(claim.job, claim.group)

    def retry(self) -> None:
        delay_ms, claims = self.draw(DELAYS_MS, "delay_ms"), self.some_claims()
        how, steps = ("snooze", -1) if delay_ms == 1000 else ("retry", 1)
        rows = [claim.row for claim in claims]
        reply = self.shard.retry(*rows, **of(claims[0]), delay_ms=delay_ms, steps=steps)
        for claim in self.held(how, reply, claims):
            self.model.retry(claim.job, claim.group, delay_ms, counts=how == "retry")

    def touch(self) -> None:
        ttr_ms, claims = self.draw(st.sampled_from([1000, TTR_MS, 10 * TTR_MS]), "ttr_ms"), self.some_claims()
        reply = self.shard.touch(*(claim.row for claim in claims), **of(claims[0]), ttr_ms=ttr_ms)
        for claim in self.held("touch", reply, claims):
            self.model.touch(claim.job, claim.group, ttr_ms)

    def reclaim(self) -> None:
        self.advance()
        group = self.group()
        read, reclaimed = self.only_read(group), self.model.reclaim(group)
        assert self.shard.reclaim(group).reclaimed == reclaimed
        self.happened["reclaim"] += reclaimed
        self.happened["hand over"] += len(read)
        for job in read:
            self.model.hand_over(job, group)

    def leave(self) -> None:
        group, consumer = self.group(), self.draw(CONSUMERS, "consumer")
        read = self.only_read(group, consumer)
        assert self.shard.call("remove_consumer", group, consumer, ALL) is True
        for claim in self.claims:
            if (claim.group, claim.consumer) == (group, consumer) and self.model.held(claim):
                self.happened["leave"] += 1
                self.model.release(claim.job, group)
        for job in read:
            self.model.hand_over(job, group)

    # -- operators

    def kick(self) -> None:
        group = self.group()
        dead = self.model.dead(group)
        ids = [job.id for job in dead] or ["j0"]
        assert self.shard.call("kick", group, 0, ids) == len(dead)
        self.happened["kick"] += len(dead)
        for job in dead:
            self.model.kick(job, group)

    def purge(self) -> None:
        group = self.group()
        dead = self.model.dead(group)
        assert self.shard.call("purge", group, ALL, []) == len(dead)
        self.happened["purge"] += len(dead)
        for job in dead:
            self.model.purge(job, group)

    def pause(self) -> None:
        self.model.paused = not self.model.paused
        self.shard.run((topics.pause if self.model.paused else topics.resume)(self.shard.store, "t"))

    def add_group(self) -> None:
        name, self.made = f"g{self.made}", self.made + 1
        self.shard.topic(groups=[*self.model.groups, name])
        self.model.add_group(name)
        self.happened["add group"] += 1

    def remove_group(self) -> None:
        group = self.group()
        self.shard.topic(groups=[name for name in self.model.groups if name != group])
        self.model.remove_group(group)
        self.happened["remove group"] += 1

    # -- what must hold after every step

    @invariant()
    def every_job_stands_where_the_model_says(self) -> None:
        for id in ("j0", "j1", "j2", "j3", "j4"):
            job, expected = self.shard.get(id), self.model.jobs.get(id)
            assert (job is None) == (expected is None), id
            if job is None or expected is None:
                continue
            there = {group: (progress.state.value, progress.attempt) for group, progress in job.groups.items()}
            assert there == {
                group: (self.model.state(expected, group), 0 if standing.kind == "done" else standing.attempt)
                for group, standing in expected.groups.items()
            }
            if all(standing.kind == "fresh" for standing in expected.groups.values()):
                assert job.due_ms == expected.due_ms
            assert job.state in JobState

    @invariant()
    def the_accounts_balance(self) -> None:
        found = self.shard.run(audit.audit(self.shard.store))
        assert found.balanced, found
        assert {balance.group for balance in found.balances} == set(self.model.groups)
        for balance in found.balances:
            expected = self.model.balance(balance.group)
            assert {name: getattr(balance, name) for name in expected} == expected, balance.group


@pytest.mark.parametrize("examples", [15, pytest.param(120, marks=pytest.mark.thorough)])
def test_any_order_of_calls(redis_server: Server, examples: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, derandomize=True, database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    class OnThisServer(Engine):
        url = redis_server.url
        happened: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(OnThisServer, settings=chosen)
    # The machine got about: whatever can happen did.
    seldom = {what for what in OUTCOMES if OnThisServer.happened[what] < 3}
    assert seldom == set() or examples < 120, OnThisServer.happened
