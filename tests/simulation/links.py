"""What is promised of jobs that wait for others: none starts before all of these were done, or have ended; and at rest
none waits in silence. It starts, it is cancelled, or it is reported as blocked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from streamdq.store.flows.children import children_in
from streamdq.store.jobs.links import BY_RESULT, ENDINGS

from . import flows
from .model import NEVER_MS, Added, AddedBy, Call, Model, Shard, Tracked, Waits

_FOR_GOOD = ("purged", "archived", "expired", "restored", "cancelled")
_FAILED_THERE = ("purged", "expired", "cancelled", "aborting")
"""A group has failed the job, or is about to, perhaps unseen."""


def enqueue_after(model: Model, call: Call, job: Tracked, waits: Sequence[bytes]) -> None:
    """The job has been put in. ``waits``: what it waits for, in the form that enqueue_after takes."""
    total, done, failed, delay_ms, on_failure, _ = waits[0].decode().split("|")
    lines = [line.split("\x1f") for part in waits[1::2] for line in part.decode().split("\n")]
    letters = "".join(part.decode().partition(",")[0] for part in waits[2::2])
    if on_failure.endswith("+"):
        job.flow, on_failure, total = flows.run_in(lines[0]), on_failure[:-1], str(int(total) - 1)
        lines, letters = lines[1:], letters[1:]
    parents = tuple(
        ((topic, int(number)), id, _life(model, ((topic, int(number)), id, life), letter))
        for (topic, number, life, id), letter in zip(lines, letters, strict=True)
    )
    if len(parents) != int(total):
        model.broken(f"job {job.serial} waits for {total}, of which {len(parents)} are named")
    job.waits, job.due_ms = Waits(parents, on_failure, int(delay_ms)), NEVER_MS
    model.parents |= {model.first_of[life] for life in parents if life in model.first_of}
    note_ends(model)
    if job.flow is None and int(done) + (int(failed) if on_failure == "run" else 0) == int(total):
        _starts(model, call, job)
    elif int(failed) and on_failure == "cancel":
        model.results.cancelled(model, job, call.now_ms)
        job.gone = "cancelled"
    model.happened[f"enqueue_after: {'some have ended' if int(done) + int(failed) else 'all live'}"] += 1


def _life(model: Model, parent: tuple[Shard, str, str], letter: str) -> str:
    """Of one that is known by its result alone, only how it had ended matters."""
    shard, id, life = parent
    if life != BY_RESULT:
        return life
    life += letter
    first = model.first_of[shard, id, life] = f"{id} by its result: {letter}"
    (model.ever_done if letter == ENDINGS["done"] else model.ever_failed).add(first)
    model.happened[f"enqueue_after: by a result, {letter}"] += 1
    return life


def attach(model: Model, call: Call) -> None:
    if call.reply is None:
        model.happened["attach: settings out of date"] += 1
        return
    for id, (life, _, how) in zip(call.args[2::3], call.reply, strict=False):  # the rest is left to the next call
        model.happened[f"attach: {how.decode() or 'live'}"] += 1
        job = model.live.get((call.shard, id.decode()))
        lives = (
            job is not None
            and not job.gone
            and (
                life == BY_RESULT.encode() or model.first_of.get((call.shard, id.decode(), life.decode())) == job.first
            )
        )
        if job is not None and lives and any(one.ended == "done" for one in job.deliveries.values()):
            model.joined_late.add(job.first)
        if how == b"done" and lives and outcome(model, job) == "open" and not model.lost_data:
            model.broken(f"job {job.serial} is said to be done, and is open")  # type: ignore[union-attr]


def adds(model: Model, job: Tracked, text: bytes) -> None:
    """The handler of the job has added others to its flow, and is done."""
    (life,) = (one for (shard, id, one), first in model.first_of.items()
               if (shard, id, first) == (job.shard, job.id, job.first) and not one.startswith(BY_RESULT))  # fmt: skip
    parent = job.shard, job.id, life
    for child in children_in(text):
        added = model.children.setdefault(child.nonce, Added(child.topic, child.id, job.flow))
        by = added.parents.setdefault(parent, AddedBy((), job.first in model.ever_done))
        by.before += child.before
        model.parents.add(job.first)
        model.happened[f"finish: adds a job{' before others' if child.before else ''}"] += 1
        if len(added.parents) > 1:
            model.happened["finish: adds a job that is there"] += 1


def was_put_in(model: Model, shard: Shard, nonce: str) -> bool:
    """Whether a child that nobody has is not put in again."""
    child = model.children.get(nonce)
    if child is None or not child.first:
        return False
    if child.shard != shard and not model.lost_data:
        model.broken(f"job {child.first} was put in twice")
    return child.shard == shard


def forget_put_in(model: Model, shard: Shard) -> None:
    """The shard was deleted, and with it who has been there: a child may be put in again."""
    for child in model.children.values():
        if child.shard == shard:
            child.first, child.shard = "", None


def child_is_put_in(model: Model, job: Tracked, nonce: str, waits: Sequence[bytes]) -> None:
    child = model.children.get(nonce)
    topic, number, life, id = waits[1].decode().split("\x1f")
    parent = (topic, int(number)), id, life
    if child is None or parent not in child.parents:
        model.broken(f"job {job.serial} was put in, and no attempt that was done has added it")
        return
    child.first, child.shard, job.flow, job.due_ms = job.first, job.shard, child.flow, NEVER_MS
    job.waits = Waits((parent,), "cancel", int(waits[0].split(b"|")[3]))
    if child.stopped:
        model.stopped[job.first] = model.groups.get(job.shard, {})
    note_ends(model)


def link_children(model: Model, call: Call) -> None:
    """Which job is there for each that was added: one of its flow, or else another job has had the id."""
    if call.reply != 1:
        return
    _, id, life, *lines = [arg.decode() for arg in call.args]
    linked = {(topic, of): nonce for topic, _, _, nonce, of in (line.split("\x1f") for line in lines[1::2])}
    for nonce, child in model.children.items():
        by = child.parents.get((call.shard, id, life))
        if by is None:
            continue
        by.stands = linked.get((child.topic, child.id), "")
        if by.stands == nonce:
            continue
        model.happened[f"link_children: {'another one of the flow' if by.stands else 'another job'} has the id"] += 1
        other = model.children.get(by.stands)
        if by.stands and (other is None or not other.first or other.flow != child.flow):
            model.broken(f"another job than {child} is there for it: {other}")
        elif not by.stands and not model.lost_data and not _is_taken(model, child):
            model.broken(f"{child} was left out, and nobody has had its id")


def _is_taken(model: Model, child: Added) -> bool:
    """Whether a job has had the id that no handler has added to the same flow."""
    lives = [life for shard, id, life in model.first_of if (shard[0], id) == (child.topic, child.id)]
    return any(life not in model.children or model.children[life].flow != child.flow for life in lives)


def _required(model: Model, job: Tracked) -> list[tuple[Shard, str, str]]:
    """All that it must not start before: what it waits for, and what that has added before it, and so on."""
    assert job.waits is not None
    found = [*job.waits.parents]
    for parent in found:
        for nonce, child in model.children.items():
            by = child.parents.get(parent)
            if by and any(model.first_of.get((job.shard, id, of)) == job.first for of, id in by.before):
                lives = [life for life in model.first_of if life[2] == (nonce if by.stands is None else by.stands)]
                found += lives or ([] if by.is_late or by.stands == "" else [(job.shard, "", nonce)])
    return found


def deliver(model: Model, call: Call) -> None:
    for number, code in enumerate(call.reply):
        id, nonce, news, added = call.args[2 + 4 * number : 6 + 4 * number]
        job = _named(model, call.shard, id.decode(), nonce.decode())
        for one in news.decode().split(";")[:-1]:
            model.happened[f"deliver: {one.split('|')[2] or 'goes on'}: {code}"] += 1
        if job is None or job.waits is None or job.gone:
            continue
        if added and job.due_ms == NEVER_MS:
            _waits_for(model, job, added.decode())
        if code == 2 and job.due_ms == NEVER_MS:
            _starts(model, call, job)
        elif code == 0 and job.due_ms == NEVER_MS and outcome(model, job) == "open":  # or all groups have aborted it
            if flows.may_be_cancelled(model, job):
                model.happened["deliver: its flow was withdrawn"] += 1
            elif job.waits.on_failure != "cancel":
                model.broken(f"job {job.serial} waits, and is said to have ended")
            elif not any(_has_failed(model, parent) for parent in job.waits.parents):
                others = [model.jobs.get(model.first_of.get(parent, "")) for parent in job.waits.parents]
                model.broken(f"job {job.serial} is cancelled, and none that it waits for has failed: {job}, {others}")
            model.results.cancelled(model, job, call.now_ms)
            job.gone = "cancelled"


def _waits_for(model: Model, job: Tracked, added: str) -> None:
    """It hears of children of those that it waits for."""
    assert job.waits is not None
    lines = [line.split("\x1f") for line in added.split("\n")]
    more = [((topic, int(number)), id, life.removeprefix("+")) for topic, number, life, id in lines]
    job.waits = job.waits._replace(parents=tuple(dict.fromkeys((*job.waits.parents, *more))))
    model.parents |= {model.first_of[life] for life in more if life in model.first_of}
    note_ends(model)
    model.happened["deliver: waits for what was added"] += 1


def _named(model: Model, shard: Shard, id: str, nonce: str) -> Tracked | None:
    job = model.live.get((shard, id))
    return job if job is not None and model.first_of.get((shard, id, nonce)) == job.first else None


def _starts(model: Model, call: Call, job: Tracked) -> None:
    assert job.waits is not None
    flows.starts(model, job)
    for parent in _required(model, job):
        first = model.first_of.get(parent)
        is_fine = first in model.ever_done or (job.waits.on_failure == "run" and _has_failed(model, parent))
        if not is_fine:
            model.broken(f"job {job.serial} starts, though {parent} has not ended well: {model.jobs.get(first or '')}")
    job.due_ms = call.now_ms + job.waits.delay_ms
    for delivery in job.deliveries.values():
        if delivery.due_ms == NEVER_MS:
            delivery.due_ms = job.due_ms


def _has_failed(model: Model, parent: tuple[Shard, str, str]) -> bool:
    """Now, or ever: what Redis has forgotten may be reported late. A job that a later group may do as well may have
    been replaced.
    """
    first = model.first_of.get(parent)
    job = model.jobs.get(first or "")
    return first in model.ever_failed or outcome(model, job) in ("dead", "failed") or _may_be_open(model, job)


def _may_be_open(model: Model, job: Tracked | None) -> bool:
    """Whether a group that joined later may have to do the job, too, though all others have done it."""
    if job is None or outcome(model, job) != "done":
        return False
    return bool(model.groups[job.shard].keys() - set(model.groups_of(job)))


def outcome(model: Model, job: Tracked | None) -> str:
    """open, done, dead (a kick may change that) or failed. None: it is lost."""
    if job is None or job.gone:
        return "failed"
    ends = [one.ended for group, one in job.deliveries.items() if group in model.groups.get(job.shard, {})]
    if "dead" in ends:
        return "dead"
    if any(end in _FOR_GOOD for end in ends):
        return "failed"
    if "aborting" in ends:
        return "late"  # and perhaps cancelled, unseen, with its consumer
    must = model.groups_of(job)
    if any(not job.of(group).ended and job.may_be_late(model.now_ms, group) for group in must):
        return "late"  # and perhaps given up
    return "done" if ends and all(job.of(group).ended == "done" for group in must) else "open"


def _may_be_left(model: Model, job: Tracked | None) -> bool:
    """Whether Redis may say that the job has ended with its groups, or has failed, though all groups that are left have
    done it. Nothing tells so of a job without a shared entry, if nobody waited for it then. And a group may have failed
    it permanently before it left; or its topic was deleted while it was in the archive.
    """
    if job is None or outcome(model, job) != "done":
        return False
    is_alone = bool(job.key or job.only) and job.first in model.joined_late and model.happened["a group leaves"] > 0
    return is_alone or job.first in model.may_have_failed


def note_ends(model: Model) -> None:
    """What has happened to those that others wait for. It stays known, whatever Redis forgets."""
    for first in model.parents - model.ever_done:
        job = model.jobs.get(first)
        how = outcome(model, job)
        if job is not None and any(one.ended in _FAILED_THERE for one in job.deliveries.values()):
            model.may_have_failed.add(first)
        if how == "done":
            model.ever_done.add(first)
            if _may_be_left(model, job):
                model.ever_failed.add(first)
        elif how != "open":
            model.ever_failed.add(first)


def at_rest(model: Model, waiting: Collection[tuple[Shard, str]], blocked: Collection[tuple[Shard, str]]) -> None:
    """``waiting``: shard and id of the jobs that wait in Redis; ``blocked``: of those that it reports."""
    for job in [job for job in model.live.values() if job.waits is not None and not job.gone]:
        place = job.shard, job.id
        if job.due_ms != NEVER_MS:
            if place in waiting:
                model.broken(f"job {job.serial} waits, though it was started: {job}")
            continue
        if place not in waiting:
            if outcome(model, job) == "open":
                model.broken(f"job {job.serial} no longer waits, and nothing started it: {job}")
            continue
        _must_wait(model, job, place in blocked)


def _found_in(model: Model, shard: Shard, job: Tracked | None) -> str:
    """How a job has ended, as this shard knows. One that came back from the archive to another shard stays archived."""
    if job is not None and job.shard != shard:
        return "archived"
    if job is not None and model.live.get((shard, job.id)) is not job and _may_be_open(model, job):
        return "replaced"
    return "left" if _may_be_left(model, job) else outcome(model, job)


def _must_wait(model: Model, job: Tracked, is_blocked: bool) -> None:
    assert job.waits is not None
    others = {parent: model.jobs.get(model.first_of.get(parent, "")) for parent in job.waits.parents}
    found = {parent: _found_in(model, parent[0], one) for parent, one in others.items()}
    story = f"{job}: {found}, of which once done: {[p for p in found if model.first_of.get(p) in model.ever_done]}"
    is_open = any(how == "open" for how in found.values())
    failed = [
        p for p, how in found.items() if how not in ("open", "done") and model.first_of.get(p) not in model.ever_done
    ]
    model.happened[f"at rest: waits, {'open' if is_open else 'blocked' if is_blocked else 'not blocked'}"] += 1
    if not is_open and all(how == "done" for how in found.values()):
        model.broken(f"job {job.serial} was never started, though all are done: {story}")
    elif job.waits.on_failure == "block":
        if (failed or not is_open) and not is_blocked:
            model.broken(f"job {job.serial} waits in silence: {story}")
    elif not is_open or (failed and job.waits.on_failure == "cancel"):
        model.broken(f"job {job.serial} waits for nothing ({job.waits.on_failure}): {story}")
