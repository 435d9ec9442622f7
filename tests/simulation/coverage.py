"""What must happen in simulated histories: a generator that never reaches a state proves nothing about it."""

from __future__ import annotations

from collections.abc import Collection

from .calls import scripts

UNREACHED = {
    "register_dump": "no job passes it: a dump reads the history",
    "rotate_secret": "no job passes it: the HTTP server signs with the secret",
}
"""Scripts that no history calls, and why."""

_HANDLERS = ("ok", "raise", "again", "bury", "snooze", "touch", "hang", "kill")
_TAKERS = ("finish", "fail", "fail later", "bury", "block", "block that fails", "forget")
_REDIS = ("restart", "fail_over", "flush", "flush_scripts", "jump")
_STATES = ("delayed", "ready", "running", "dead", "done")
_ENDS = ("finish", "retry", "bury", "release")
_FAULTS = ("request lost", "reply lost", "late", "refused")
_CALLS = (
    "claim", "finish", "retry", "enqueue", "move", "reclaim", "lease", "register_topic",
    "configure_shard", "relay",
)  # fmt: skip
_RELAYED = ("enqueued", "by an earlier call", "id taken", "fenced off", "settings out of date")
_KILLED_IN = ("finish", "enqueue", "configure_shard", "register_topic", "leave_group", "relay")

_OUTCOMES = (
    "bury: buried", "bury: crashed", "bury: exhausted", "retry: a step", "retry: no step", "retry: snoozed",
    *(f"{script}: refused" for script in (*_ENDS, "touch")),
    "claim: expired", "claim: no such group", "claim: out of date", "claim: paused", "claim: taken over",
    "claim: the same again", "claim: left alone", "claim: a TTR of the group's own",
    "enqueue: id taken", "enqueue: settings out of date", "replace: id taken", "replace: settings out of date",
    "finish: adds a job", "finish: adds a job before others", "deliver: waits for what was added",
    "enqueue_unique: postponed", "enqueue_unique: id taken", "enqueue_unique: taken by a job that has ended",
    *(f"{script}: {code}" for script in ("cancel", "reschedule") for code in (1, 0, -1, -2, -3, -4)),
    *(f"found {action}: done" for action in ("cancel", "reschedule", "kick", "purge")),
    *(f"abort: {code}" for code in (2, 1, 0, -2, -3)), *(f"{script}: aborted" for script in (*_ENDS, "touch")),
    "remove_consumer: handed back", "move: other groups", "move: no permit",
    "configure_shard: 1", "configure_shard: 0", "configure_shard: jobs stay where they are",
    "configure_shard: resharded",
    "enqueue_unique: nothing at a former home", "enqueue_unique: new at a former home",
    "drop_shard: 1", "drop_shard: 0", "a group leaves",
    "take_over: some", "take_over: nothing", "a key at its limit: True", "a key at its limit: False",
    "a start waited for the rate of its key",
    "pause_key: 1", "pause_key: -1",
    "fire: enqueued", "fire: skipped", "fire: unplanned", "retract: taken back", "retract: nothing",
    "schedule: changed meanwhile", "schedule: missed", "schedule: all accounted for",
    *(f"relay: {what}" for what in _RELAYED),
    *(f"relayed: {what}" for what in ("unknown", "live", "ended")),
    "lease: elected", "lease: a new standby", "lease: a standby in its turn",
    "killed as the mover", "stopped as the mover",
    "archive: 1", "archive: 0", "restore: 1", "restore: 0", "restore: -1", "restore: settings out of date",
    "restore: to another shard",
    *(f"result: {end}" for end in ("done", "JobFailed", "JobCancelled", "JobExpired", "ResultTimeout", "ResultGone")),
    "notification lost",
)  # fmt: skip

EXPECTED = frozenset({
    *_OUTCOMES,
    *(f"call {script}" for script in set(scripts().values()) - UNREACHED.keys()),
    *(f"handler {what}" for what in _HANDLERS),
    *(f"taker: {what}" for what in _TAKERS),
    "committed", "rolled back", *(f"the database fails {when} a transaction" for when in ("before", "after")),
    "work should go on",
    "taken", "nothing taken", "again: StaleClaim", "acknowledged", "killed", "stopped", "terminated", "drained",
    *(f"network {what}" for what in ("lossy", "slow", "cut", "fine")),
    *(f"{fault}: {call}" for fault in _FAULTS for call in _CALLS),
    *(f"{what} while {state}" for what in (*_REDIS, "destroy_group", "relay", "reconcile") for state in _STATES),
    *(f"{what} in {call}" for what in ("killed", "stopped", "terminated")
      for call in ("claim", "XREADGROUP")),
    *(f"killed in {call}" for call in _KILLED_IN),
})  # fmt: skip
"""What some history must have. Those of one run may lack what is rare."""

RARE = frozenset({
    "archive: 0", "bury: crashed", "call audit_entries", "configure_shard: 0",
    "killed in leave_group", "killed in relay",
    "relay: fenced off", "restore: 0", "restore: settings out of date",
    "result: JobExpired", "touch: aborted",
})  # fmt: skip
"""What the fixed set of histories lacks; longer runs have it."""


def never_happened(happened: Collection[str]) -> list[str]:
    return sorted(EXPECTED - set(happened))
