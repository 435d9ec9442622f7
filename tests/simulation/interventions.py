"""What operators' calls mean for the model: on jobs, dead letters, the archive and topics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from . import links
from .model import NO_LIMIT, Call, Delivery, KeyLimit, Model, Shard, Step, Tracked, due_of, key_in, shard_of, whole

_LETTERS = re.compile(rb"\|([^:|]+):d([^|]*)")


def find_jobs(model: Model, call: Call) -> None:
    _show(model, call.shard, call.reply[2:])


def find_in_order(model: Model, call: Call) -> None:
    _show(model, call.shard, call.reply[3:])


def _show(model: Model, shard: Shard, matches: Sequence[Sequence[bytes]]) -> None:
    for id, deliveries, *_ in matches:
        job = model.live.get((shard, id.decode()))
        if job is None or job.gone:
            model.broken(f"{id!r} was found, which is {job.gone if job else 'not there'}")
            continue
        model.shown[shard, id, deliveries] = job.serial
        for group, letter in _LETTERS.findall(deliveries):
            model.shown[shard, id + b"\x1f" + letter, group] = job.of(group.decode()).ended_ms


def _check_shown(model: Model, shard: Shard, id: bytes, what: bytes, now: Any) -> None:
    """What is acted on is what was shown, if Redis did not forget that in between."""
    known = model.shown.get((shard, id, what))
    if known is not None and known != now and not model.lost_data:
        model.broken(f"acted on {id!r} as it was when {known} was shown; now it is {now}")


def cancel(model: Model, call: Call) -> None:
    model.happened[f"cancel: {call.reply}"] += 1
    job = model.live.get((call.shard, call.args[1].decode()))
    if call.reply == 1 and job is not None:
        _check_shown(model, call.shard, call.args[1], b"".join(call.args[6:7]), job.serial)
    groups = list(model.groups.get(call.shard, {})) if job and not job.gone else []
    held = [group for group in groups if job and model.is_held(job.of(group).claim, call.now_ms)]
    if call.reply == 1:
        if job is None or all(job.of(group).ended for group in groups):
            model.broken(f"cancelled {call.args[1]!r}, which was not open: {job}")
        else:
            if held:
                model.broken(f"cancelled job {job.serial} while it ran in {held}")
            model.results.cancelled(model, job, call.now_ms)
            job.gone = "cancelled"
            for group in groups:  # its dead letters go with it
                model.count(call.shard, "purged", group, int(job.of(group).ended == "dead"))
    elif call.reply == 0 and job is not None and not job.gone and not job.expire_ms:
        open_in = [group for group in model.groups_of(job) if not job.of(group).ended]
        if open_in:
            model.broken(f"job {job.serial} is open in {open_in}, and cancel did not find it")


def _is_meant(model: Model, call: Call, job: Tracked) -> bool:
    """Whether the call, which names a nonce, is about this job, and not about an earlier one with its id."""
    return model.first_of.get((call.shard, job.id, call.args[7].decode())) == job.first


def abort(model: Model, call: Call) -> None:
    """From now on no attempt of the job is given out; one that runs ends as cancelled."""
    status, *rest = call.reply
    model.happened[f"abort: {status}"] += 1
    job, only = model.live.get((call.shard, call.args[1].decode())), call.args[5].decode()
    if job is not None and call.args[7:] and not _is_meant(model, call, job):
        job = None
    groups = model.groups.get(call.shard, {}) if job and not job.gone else {}
    concerned = {group: job.of(group) for group in groups if job and only in ("", group)}
    if status == 0 and job is not None and not job.expire_ms:
        open_in = [group for group in model.groups_of(job) if group in concerned and not concerned[group].ended]
        if open_in:
            model.broken(f"job {job.serial} is open in {open_in}, and abort did not find it: {job}")
    elif status > 0 and (job is None or all(one.ended not in ("", "aborting") for one in concerned.values())):
        model.broken(f"aborted {call.args[1]!r}, which was not open: {job}")
    elif status > 0 and job is not None:
        reported = {
            (who.decode(), main, entry) for who, main, entry in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        }
        for group in concerned:
            _abort_in(model, call, job, group, reported)
        if status == 1 and not only:
            job.gone = "cancelled"


def _abort_in(
    model: Model, call: Call, job: Tracked, group: str, reported: Collection[tuple[str, bytes, bytes]]
) -> None:
    delivery = job.of(group)
    claim = delivery.claim
    if claim is not None and (claim.consumer, *claim.proof) in reported:
        delivery.ended = "aborting"
    elif delivery.ended != "aborting" and model.is_held(claim, call.now_ms):
        model.broken(f"{call.args[1]!r} was aborted, and {claim} in {group} was not told")
    elif delivery.ended in ("", "aborting"):
        delivery.end("cancelled", call.now_ms)
        model.results.ended(model, job, group, "cancelled", call.now_ms)
    elif delivery.ended == "dead" and not call.args[5]:
        delivery.end("purged", call.now_ms)
        model.count(call.shard, "purged", group)


def reschedule(model: Model, call: Call) -> None:
    model.happened[f"reschedule: {call.reply}"] += 1
    job = model.live.get((call.shard, call.args[1].decode()))
    if call.reply != 1:
        return
    if job is None or job.gone:
        model.broken(f"rescheduled {call.args[1]!r}, which is gone")
        return
    _check_shown(model, call.shard, call.args[1], b"".join(call.args[5:6]), job.serial)
    job.due_ms = due_of(call.args[2].decode(), call.now_ms)
    for delivery in job.deliveries.values():
        if not delivery.ended:
            if model.is_held(delivery.claim, call.now_ms):
                model.broken(f"rescheduled job {job.serial} while it ran")
            delivery.most += delivery.claim is not None  # it was lost with its consumer
            delivery.maybe_lost += delivery.claim is not None
            delivery.due_ms, delivery.claim = job.due_ms, None


def kick(model: Model, call: Call) -> None:
    group = call.args[1].decode()
    for job in _dead(model, call.shard, group, call.args[4:], call.reply):
        model.results.begins(job.shard, job.id, group)
        job.of(group).open_again(call.now_ms - 1)  # the script's own clock may be a fraction of a millisecond behind
        model.count(call.shard, "dead", group, -1)


def purge(model: Model, call: Call) -> None:
    group = call.args[1].decode()
    for job in _dead(model, call.shard, group, call.args[3:], call.reply):
        job.of(group).end("purged", call.now_ms)
        model.count(call.shard, "purged", group)


def _dead(model: Model, shard: Shard, group: str, ids: Sequence[bytes], count: int) -> list[Tracked]:
    """Those with the ids, or else those that have been dead for longest."""
    dead = [(job.of(group).ended_ms, job.id, job) for job in model.jobs_in(shard) if job.of(group).ended == "dead"]
    of = {argument.partition(b"\x1f")[0].decode(): argument for argument in ids}
    chosen = [row for row in sorted(dead, key=lambda row: row[:2]) if not ids or row[1] in of][:count]
    for buried_ms, id, _ in chosen if ids else ():
        _check_shown(model, shard, of[id], group.encode(), buried_ms)
    if len(chosen) != count:
        model.broken(f"{count} dead letters of {group} in {shard} were kicked or purged; there were {len(chosen)}")
    return [job for _, _, job in chosen]


# -- the archive


def archive(model: Model, call: Call) -> None:
    group = call.args[1].decode()
    for i, code in enumerate(call.reply):
        id, receipt, buried_ms, *_ = call.args[2 + 5 * i : 7 + 5 * i]
        model.happened[f"archive: {code}"] += 1
        if code == 0 or (call.shard, receipt) in model.receipts:
            continue
        job = model.live.get((call.shard, id.decode()))
        delivery = job.of(group) if job and not job.gone else None
        if job is None or delivery is None or (delivery.ended, delivery.ended_ms) != ("dead", int(buried_ms)):
            model.broken(f"{id!r} of {group} left Redis for the archive, but it is {delivery}")
            continue
        model.receipts.add((call.shard, receipt))
        delivery.end("archived", call.now_ms)
        delivery.archived_as = job.serial
        model.rows[job.serial, group] += 1
        model.count(call.shard, "archived", group)


def restore(model: Model, call: Call) -> None:
    status, *codes = call.reply
    if status != 1:
        model.happened["restore: settings out of date"] += 1
        return
    for i, code in enumerate(codes):
        id, receipt, attempt, due_ms, rest = call.args[5 + 5 * i : 10 + 5 * i]
        model.happened[f"restore: {code}"] += 1
        noted = call.shard, receipt
        late = noted in model.cleared
        if code == 1 and (late or noted not in model.receipts):
            if late:
                model.happened["restore: came late"] += 1
            model.receipts.add(noted)
            model.cleared.discard(noted)
            _bring_back(model, call, id.decode(), int(attempt), int(due_ms), rest, late)


def clear_receipts(model: Model, call: Call) -> None:
    """The database knows. A restore that was on its way all the time brings the job back once more."""
    if call.args[0].endswith(b":archive"):
        shard = shard_of(call.args[0].decode())
        model.cleared |= model.receipts & {(shard, receipt) for receipt in call.args[1:]}


def _bring_back(model: Model, call: Call, id: str, attempts: int, due_ms: int, rest: bytes, late: bool) -> None:
    group = call.args[1].decode()
    _, ttr, expire, _, _, line, body = rest.split(b"\n", 6)
    serial, now_ms = json.loads(body)["n"], call.now_ms - 1
    model.given_back.add(serial)
    if (once := model.jobs.get(serial)) is not None and once.gone:  # so nobody knows who waits for it
        model.may_have_failed.add(serial)
    job = model.live.get((call.shard, id))
    if job is not None and not job.gone and job.serial != serial and any(
        not job.of(name).ended or job.of(name).ended == "dead" for name in model.groups_of(job)
    ):  # fmt: skip
        model.broken(f"job {serial} came back from the archive and took the place of {job.serial}")
    if job is None or job.gone or job.serial != serial:
        job = Tracked(
            serial, call.shard, id, due_ms, whole(ttr), whole(expire), model.calls_seen, key_in(line), only={group}
        )
        job.first = serial
        model.check_homes(job)
        model.live[call.shard, id] = job
    model.jobs[serial] = job
    for before in _before(model, job, group):
        # A group that has left and joined again may have failed twice, and an operator may bring back both rows.
        may_return = late or model.lost_data or model.rows[serial, group] > 1
        if before.ended not in ("archived", "restored") and not may_return:
            model.broken(f"job {serial} came back from the archive, though it was {before} in {group}")
    _leave_other_homes(model, job, group)
    others = [job.deliveries.get(name) for name in model.groups[call.shard] if name != group]
    if job.only or all(other and other.ended not in ("", "dead") for other in others):  # its record had gone
        job.only.add(group)
    job.deliveries[group] = Delivery(now_ms, least=attempts, most=attempts)
    model.results.begins(call.shard, id, group)
    if (
        model.counts.get(call.shard, Counter())[f"archived:{group}"] > 0
    ):  # it was archived here, and no longer counts as dead
        model.count(call.shard, "archived", group, -1)
        model.count(call.shard, "dead", group, -1)


def _before(model: Model, job: Tracked, group: str) -> list[Delivery]:
    """What the group had of the job, in this shard and in those where it was before the number of shards changed."""
    same = [job, *(other for other in _elsewhere(model, job) if other.serial == job.serial)]
    found = [(one, one.deliveries[group]) for one in same if group in one.deliveries]
    # Unless the group left with what it had of the job, joined again, and perhaps got the job once more.
    return [was for one, was in found if group in model.groups_of(one)]


def _leave_other_homes(model: Model, job: Tracked, group: str) -> None:
    """What left another shard for the archive is here now."""
    for other in _elsewhere(model, job):
        delivery = other.deliveries.get(group)
        if delivery is not None and (delivery.ended, delivery.archived_as) == ("archived", job.serial):
            model.happened["restore: to another shard"] += 1
            delivery.ended = "restored"


def _elsewhere(model: Model, job: Tracked) -> list[Tracked]:
    """Who has the job's id in other shards of its topic."""
    others = [shard for shard in model.groups if shard[0] == job.shard[0] and shard != job.shard]
    there = [model.live.get((shard, job.id)) for shard in others]
    return [other for other in there if other is not None and not other.gone]


# -- topics


def configure_shard(model: Model, call: Call) -> None:
    status, groups, _, version, layout, *_ = call.reply
    model.happened[f"configure_shard: {status}"] += 1
    if b"<" in layout:
        model.happened["configure_shard: jobs stay where they are"] += 1
    elif b"<" in call.args[1]:
        model.happened["configure_shard: resharded"] += 1
        if status == 1:
            model.check_at_home(call.shard, int(layout))
    if status != 1:
        return
    before = model.groups.get(call.shard, {})
    names = groups.decode().split(",") if groups else []
    model.groups[call.shard] = {name: before.get(name, model.calls_seen) for name in names}
    model.versions[call.shard] = max(version, model.versions.get(call.shard, 0))
    if version != int(call.args[0]):
        return  # the shard has newer settings, which stay
    fields = dict(zip(call.args[5::2], call.args[6::2], strict=True))
    rate = float(fields.get(b"rate") or 0)
    if rate != model.rates.get(call.shard, 0.0):
        model.rates[call.shard] = rate
        model.moves.pop(call.shard[0], None)
    most, _, pace = (fields.get(b"key_limit") or b"0").decode().partition("/")
    limit = KeyLimit(int(most), float(pace or 0), model.calls_seen)
    if limit[:2] != model.key_limits.get(call.shard, NO_LIMIT)[:2]:
        model.key_limits[call.shard] = limit
        model.free_from = {limited: at for limited, at in model.free_from.items() if limited[0] != call.shard}
    for group in set(call.args[3].decode().split(",")) & before.keys():
        _leave(model, call.shard, group)
    model.fields.setdefault(call.shard, {}).update({name.decode(): value for name, value in fields.items()})


def _leave(model: Model, shard: Shard, group: str) -> None:
    model.happened["a group leaves"] += 1
    model.fields.get(shard, {}).pop(f"ttr:{group}", None)
    model.disturb()
    for name in [name for name in model.counts.get(shard, ()) if name.endswith(f":{group}")]:
        del model.counts[shard][name]
    for job in model.jobs_in(shard):
        job.deliveries.pop(group, None)
        if job.only == {group}:
            job.gone = "deleted"
        job.only.discard(group)


def pause_key(model: Model, call: Call) -> None:
    key = call.shard, call.args[2].decode()
    model.happened[f"pause_key: {call.reply}"] += 1
    if call.reply == 1 and call.args[3] == b"1":
        model.paused_keys.setdefault(key, model.calls_seen)
    elif call.args[3] == b"0" and call.reply in (0, 1):
        model.paused_keys.pop(key, None)


def drop_shard(model: Model, call: Call) -> None:
    model.happened[f"drop_shard: {call.reply}"] += 1
    if call.reply != 1 or model.versions.get(call.shard, 0) > int(call.args[0]):
        return  # it holds jobs, or has newer settings
    jobs = [job for job in model.live.values() if job.shard == call.shard and not job.gone]
    if call.args[1] == b"1":
        model.outbox.forget(call.shard)
    else:
        _must_be_empty(model, call.shard, jobs)
    model.cleared |= {receipt for receipt in model.receipts if receipt[0] == call.shard}
    model.lose([job for job in model.jobs.values() if job.shard == call.shard], "deleted", call.shard)
    links.forget_put_in(model, call.shard)
    for known in (model.groups, model.fields, model.rates, model.key_limits, model.counts):
        known.pop(call.shard, None)
    model.free_from = {limited: at for limited, at in model.free_from.items() if limited[0] != call.shard}
    model.paused_keys = {key: at for key, at in model.paused_keys.items() if key[0] != call.shard}


def _must_be_empty(model: Model, shard: Shard, jobs: Sequence[Tracked]) -> None:
    for job in jobs:
        open_in = [g for g in model.groups_of(job) if not job.of(g).ended and not job.may_be_late(model.now_ms, g)]
        if open_in:
            model.broken(f"{shard} was deleted, as if it were empty: job {job.serial} is open in {open_in}")


def flushall(model: Model, _: Call) -> None:
    model.lose(list(model.jobs.values()), "lost")  # also those whose ids others have got
    model.outbox.forget()
    model.results.forget()
    model.cleared |= model.receipts
    model.lost_data = True
    for known in (
        model.groups, model.fields, model.rates, model.key_limits, model.paused_keys, model.counts, model.moves,
        model.versions, model.free_from,
    ):  # fmt: skip
        known.clear()


INTERVENTIONS: dict[str, Step] = {
    step.__name__: step
    for step in (
        find_jobs,
        find_in_order,
        cancel,
        abort,
        reschedule,
        kick,
        purge,
        archive,
        restore,
        configure_shard,
        pause_key,
        drop_shard,
    )
} | {"FLUSHALL": flushall, "HDEL": clear_receipts}
