"""Flows, in tests of scripts: all of one is in the same shard."""

from __future__ import annotations

from typing import Any

from streamdq.job.after import Waits
from streamdq.job.job import NewJob
from streamdq.store.jobs.links import Known, dependencies, follower
from streamdq.store.jobs.records import as_waiting, encode
from streamdq.store.scripts.flows import Decided, Run, Swept
from streamdq.store.scripts.links import NewInFlow
from tests.lua.links import Linked
from tests.lua.shard import Shard

WITHIN_MS = 60_000


class Built:
    """A flow, ``f`` if not named."""

    def __init__(self, shard: Shard, life: str = "life", name: str = "f") -> None:
        self.shard = shard
        self.linked = Linked(shard)
        self.run = Run(shard.k, name, life)
        self.gates = self.jobs = 0

    def _step(self, op: Any) -> Any:
        reply = self.shard.run(op)
        self.shard.check()
        return reply

    def begin(self, deadline_ms: int = 0) -> tuple[int, str]:
        scripts, settings = self.shard.scripts, self.shard.settings
        reply: tuple[int, str] = self._step(scripts.begin_flow(self.run, settings, WITHIN_MS, deadline_ms))
        return reply

    def gate(self, *ids: str, number: int | None = None) -> bool:
        """A gate for these jobs."""
        number = self.gates if number is None else number
        lines = [follower("t", 0, 0, f"n-{id}", id) for id in ids]
        reply: bool = self._step(self.shard.scripts.add_gate(self.run, number, WITHIN_MS, lines))
        self.gates = max(self.gates, number + 1)
        return reply

    def put(self, id: str, on_failure: Any = "block", *parents: str, number: int = 0) -> None:
        """A job that waits for a gate, and for others that were put in before."""
        gate = Known("t", 0, f"{self.run.name}~{number}", self.run.life, 0, "")
        waits = Waits((), on_failure, 0)
        made = as_waiting(encode(NewJob({"id": id}, id=id), 1000), waits, f"n-{id}")
        self.linked.made[id] = made
        args = [v for i, one in enumerate(parents, 1) for v in (one, f"n-{one}", follower("t", 0, i, made.nonce, id))]
        found = self.shard.call("attach", None, args) if args else []
        known = [Known("t", 0, parent, *one) for parent, one in zip(parents, found, strict=True)]
        own = follower("t", 0, self.jobs, self.run.life, self.run.name)
        self.jobs += 1
        self.shard.call("enqueue_after_many", 1, [NewInFlow(made.id, made.rest, own, dependencies(waits, known, gate))])

    def complete(self, *ids: str) -> None:
        """The flow's own job."""
        waits = Waits((), "run", 1000, self.gates)
        made = as_waiting(encode(NewJob({}, id=self.run.name), 1000), waits, self.run.life)
        self.linked.made[self.run.name] = made
        known = [Known("t", 0, id, f"n-{id}", 0, "") for id in ids]
        self.shard.call("enqueue_after", 1, "keep", (made.id, made.rest), dependencies(waits, known))

    def built(self, *ids: str, deadline_ms: int = 0) -> None:
        """A complete flow of these jobs."""
        assert self.begin(deadline_ms) == (1, self.run.life)
        assert self.gate(*ids)
        for id in ids:
            self.put(id)
        self.complete(*ids)

    def decide(self, how: str) -> Decided:
        reply: Decided = self._step(self.shard.scripts.decide_flow(self.run, how))
        return reply

    def sweep(self, limit: int = 10) -> tuple[bool, list[Run]]:
        swept: Swept = self._step(self.shard.scripts.sweep_flows(self.shard.k, limit))
        return swept.has_more, swept.late

    @property
    def stored(self) -> str:
        """life|state|gates|ended|until_ms|deadline_ms; "" = nothing."""
        text = self.shard.redis("HGET", self.shard.k.flows, self.run.name)
        return text.decode() if text else ""

    @property
    def look_ms(self) -> int | None:
        """When the mover looks at it."""
        score = self.shard.redis("ZSCORE", self.shard.k.flow_times, self.run.name)
        return None if score is None else int(score)
