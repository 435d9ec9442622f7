"""What kind of history a seed makes, and what its jobs and calls are like."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from streamdq.job.job import Priority
from streamdq.job.uniqueness import OnConflict

GROUPS = ("default", "audit", "extra")
"""The first is there all the time."""
CONFLICTS: tuple[OnConflict, ...] = ("reject", "keep", "replace")
PRIORITIES: tuple[Priority, ...] = ("high", "high", "normal", "normal", "normal", "low")
RETRIES = ("1s 2s", "0", "500ms 1s 5s", "3s")
RATES = (0, 0, 5, 20, 100)
RULES: tuple[dict[str, Any], ...] = (
    {"unique_for": "3s"},
    {"unique_for": "60s"},
    {"unique_for": "9s", "unique_after": "finish"},
    {"rate_of_id": "2/30s"},
)
GROUP_TTRS = (None, "1s", "4s", "60s")
MAX_DELIVERIES = (3, 20)
DEFAULT_DELIVERIES = 5

_ENDS = ("ok", "ok", "ok", "raise", "raise", "again", "bury", "snooze", "touch", "hang", "kill")
"""What a handler does: ``hang`` longer than its TTR, ``kill`` its process."""


@dataclass(frozen=True)
class Plan:
    topics: int
    fleeting: bool  # a topic more, which is deleted and made again
    shards: int
    workers: int  # for each group
    producers: int
    takers: int
    horizon_s: float
    night_s: float  # a long quiet time before the end
    shuffled: bool
    crashes: bool  # processes are killed and stopped
    network: bool  # messages are lost or late, connections cut
    server: bool  # Redis restarts, fails over, is flushed, its clock jumps
    deploys: bool  # workers are told to end, and started again
    operators: int
    ttr: str  # at first: with a long one, only the heartbeat shows that a worker is dead
    archive: bool  # dead letters are moved to a database, and back
    own_ttrs: bool  # each worker brings a TTR for its group, which holds until another one brings one
    vandal: bool  # somebody destroys consumer groups
    has_keys: bool  # jobs have keys, of which only so many attempts run at once
    unique: bool  # some ids are taken for a time, or only so often, and jobs are postponed

    @classmethod
    def drawn(cls, random: Random, later: Random) -> Plan:
        """``later``: for what was added to the generator, so that seeds without it kept their histories."""
        return cls(
            topics=random.choice((1, 1, 2)),
            fleeting=random.random() < 0.5,
            shards=random.choice((1, 1, 2, 3)),
            workers=random.choice((1, 2, 2, 3)),
            producers=random.choice((1, 2)),
            takers=random.choice((0, 0, 1, 2)),
            horizon_s=random.choice((10.0, 20.0, 40.0)),
            night_s=900.0 if random.random() < 0.03 else 0.0,
            shuffled=random.random() < 0.5,
            crashes=random.random() < 0.6,
            network=random.random() < 0.6,
            server=random.random() < 0.4,
            deploys=random.random() < 0.5,
            operators=random.choice((0, 1, 1, 2)),
            archive=random.random() < 0.15,
            ttr=random.choice(("2s", "2s", "60s")),
            own_ttrs=later.random() < 0.3,
            vandal=later.random() < 0.2,
            unique=later.random() < 0.3,
            has_keys=later.random() < 0.4,
        )


def body(random: Random, serial: int) -> dict[str, Any]:
    """Names the job, and says what its handler does in each attempt; after that it succeeds."""
    plan = []
    for _ in range(random.randrange(4)):
        what = random.choice(_ENDS)
        plan.append((what, 5.0 if what == "hang" else random.choice((0.0, 0.0, 0.01, 0.5, 1.5))))
    if random.random() < 0.02:
        plan = [("kill", 0.0)] * 30  # in each attempt
    return {"n": serial, "plan": plan}


def options(random: Random, id: str) -> dict[str, Any]:
    """Of a new job."""
    found: dict[str, Any] = {"delay": random.choice((0, 0, 0.1, 1.0, 3.0, 8.0)), "id": id}
    if random.random() < 0.1:
        found["ttr"] = random.choice(("1s", "5s"))
    if random.random() < 0.1:
        found["expire"] = random.choice(("200ms", "2s"))
    if random.random() < 0.2:
        found["retry"] = random.choice(RETRIES)
    return found


KEYS = ("key 0", "key 1", "key 2")


def key_of(id: str) -> dict[str, Any]:
    """The key of the job with this id, always the same, or none."""
    number = crc32(id.encode()) % 5
    return {"key": KEYS[number]} if number < len(KEYS) else {}


def key_limits(random: Random, paces: Random | None) -> dict[str, Any]:
    """Of a topic."""
    limits = {"key_concurrency": random.choice((0, 1, 1, 2, 4)), "key_order": random.choice((True, False, "pass"))}
    return limits | ({"key_rate": paces.choice((0, "2/s", "10/s", "60/s"))} if paces else {})


def uniqueness(random: Random) -> dict[str, Any]:
    """Options of a call that looks at more than the jobs that are there."""
    if random.random() < 0.4:
        return {"on_conflict": "postpone", "at_most": random.choice((None, "2s", "5s"))}
    rule = random.choice(RULES)
    return {"on_conflict": random.choice(CONFLICTS), **rule}
