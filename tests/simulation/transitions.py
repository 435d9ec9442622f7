"""What each script's call means for the model, by the scripts' contracts, and which promises it may break. Those of
operators are in ``interventions.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

from . import flows, links
from .interventions import INTERVENTIONS
from .model import NEVER_MS, NO_LIMIT, Call, Claim, Delivery, Model, Shard, Step, Tracked, due_of, key_in, whole
from .results import read
from .uniqueness import check_new, postponed

LAG_MS = 50
_OF_CLAIM = {"finish": 4, "retry": 8, "bury": 7, "release": 4, "touch": 4}  # arguments for each claim
_BEFORE_CLAIMS = {"retry": 7, "bury": 7}  # arguments; of the others 5

# -- jobs come


def enqueue(model: Model, call: Call) -> None:
    _put(model, call, 3, replaces=False)


def replace(model: Model, call: Call) -> None:
    _put(model, call, 4, replaces=True)


def enqueue_unique(model: Model, call: Call) -> None:
    status, now_ms, looked, *taken = call.reply
    if status != 1:
        model.happened["enqueue_unique: settings out of date"] += 1
        return
    records = dict(zip(taken[::2], taken[1::2], strict=True))
    for i in range(looked):
        id, when, rest, rule = call.args[6 + 4 * i : 10 + 4 * i]
        name, record = id.decode(), records.get(i + 1)
        if record == b"":
            model.happened["enqueue_unique: nothing at a former home"] += 1
        elif record is None:
            if call.args[5] == b"former":
                model.happened["enqueue_unique: new at a former home"] += 1
            replaces = call.args[4] == b"replace"
            job = _create(model, call, now_ms, name, when.decode(), rest, replaces)
            if rule:
                check_new(model, now_ms, job, rule, replaces)
        elif record.endswith(b"\nnull"):
            model.happened["enqueue_unique: taken by a job that has ended"] += 1
        else:
            there = postponed(model, call, call.shard, name, (when, rest, rule), record)
            model.happened[f"enqueue_unique: {'postponed' if there else 'id taken'}"] += 1


def _put(model: Model, call: Call, first: int, replaces: bool) -> None:
    status, now_ms, looked, *taken = call.reply
    if status == 0:
        model.happened[f"{call.name}: settings out of date"] += 1
        return
    for i in range(looked):
        if i + 1 not in taken[::2]:
            id, when, rest = call.args[first + 3 * i : first + 3 * i + 3]
            _create(model, call, now_ms, id.decode(), when.decode(), rest, replaces)
        else:
            model.happened[f"{call.name}: id taken"] += 1


def _create(model: Model, call: Call, now_ms: int, id: str, when: str, rest: bytes, replaces: bool) -> Tracked:
    ttr, expire, nonce, _, line, body = rest.split(b"\n", 5)
    job = Tracked(
        json.loads(body)["n"], call.shard, id, due_of(when, now_ms), whole(ttr), whole(expire), model.calls_seen,
        key_in(line),
    )  # fmt: skip
    job.first = job.serial
    model.first_of[call.shard, id, nonce.decode() or f"@{now_ms}"] = job.first  # life_of
    before = model.live.get((call.shard, id))
    if before is not None and not before.gone:
        open_in = [g for g in model.groups_of(before) if not before.of(g).ended]
        if open_in and job.serial == before.serial:
            model.broken(f"job {job.serial} was put in again, while it is open in {open_in}")
        later = model.groups.get(call.shard, {}).keys() & before.deliveries  # they may have it, too
        open_also = [group for group in later if not before.of(group).ended]
        if replaces and (open_in or open_also):
            aborting = {group for group, one in before.deliveries.items() if one.ended == "aborting"}
            if any(model.is_held(before.of(group).claim, now_ms) for group in {*open_in, *open_also, *aborting}):
                model.broken(f"job {before.serial} was replaced while it ran")
            before.gone = "replaced"
        elif not all(before.may_be_late(model.now_ms, group) for group in open_in):
            model.broken(f"job {job.serial} took the place of {before.serial}, which is open in {open_in}")
    model.check_homes(job)
    known = model.jobs.get(job.serial)
    # A call repeated after its job was replaced, or had ended, puts it in again: perhaps in another shard.
    if known not in (None, before) and not known.gone and any(not known.of(g).ended for g in model.groups_of(known)):
        model.broken(f"job {job.serial} was put in twice")
    model.jobs[job.serial] = model.live[call.shard, id] = job
    model.results.begins(call.shard, id)
    return job


def nonce_in(rest: bytes) -> str:
    """Of a record without its beginning."""
    return rest.split(b"\n", 3)[2].decode()


def enqueue_after(model: Model, call: Call) -> None:
    status, now_ms, looked, *taken = call.reply
    if status == 0:
        model.happened["enqueue_after: settings out of date"] += 1
        return
    for number in range(1, looked + 1):
        id, rest, own, waits = call.args[4 * number : 4 * number + 4]
        if number in taken[::2]:
            model.happened["enqueue_after: id taken"] += 1
        elif call.args[3] == b"look":
            model.happened["enqueue_after: id free"] += 1
        elif call.args[3] == b"once" and links.was_put_in(model, call.shard, nonce_in(rest)):
            model.happened["enqueue_after: it was here before"] += 1
        else:
            job = _create(model, call, now_ms, id.decode(), str(NEVER_MS), rest, call.args[3] == b"replace")
            if call.args[3] == b"once":
                links.child_is_put_in(model, job, nonce_in(rest), waits.split(b"\x1e"))
                continue
            links.enqueue_after(model, call, job, waits.split(b"\x1e"))
            model.happened[f"enqueue_after: {'in a flow' if own else 'in no flow'}"] += 1


# -- the outbox


def relay(model: Model, call: Call) -> None:
    status, *codes = call.reply
    if status != 1:
        model.happened["relay: fenced off" if status < 0 else "relay: settings out of date"] += 1
        return
    for number, code in enumerate(codes):
        id, when, rest, receipt, replaces = call.args[8 + 5 * number : 13 + 5 * number]
        model.outbox.relayed(model, call, code, receipt, when.decode(), rest)
        if code == 1:
            _create(model, call, call.now_ms, id.decode(), when.decode(), rest, replaces == b"1")


def relayed(model: Model, call: Call) -> None:
    if call.reply is None:
        model.happened["relayed: settings out of date"] += 1
        return
    for receipt, code in zip(call.args[2::2], call.reply, strict=True):
        model.outbox.tells(model, code, receipt)


# -- schedules


def schedule(model: Model, call: Call) -> None:
    if call.reply != 1:
        model.happened["schedule: changed meanwhile" if call.reply == 0 else "schedule: settings out of date"] += 1
        return
    fields = call.args[6].split(b"\n", 12)
    held, plan, job = fields[5], fields[9], fields[12]
    # One that waits for its predecessor gets another id as well, if the number of shards has changed.
    for occurrence in filter(None, (held, *plan.split(b"\x1e"))):
        due_ms, _, id, text = occurrence.split(b"\x1f")
        model.planned[call.shard, id] = due_ms.decode(), job.replace(b"{due}", text)
    if int(call.args[5]):
        model.happened["schedule: missed"] += 1


def fire(model: Model, call: Call) -> None:
    status, now_ms, _, skipped, jobs, unplanned = call.reply
    if status != 1:
        model.happened["fire: settings out of date"] += 1
        return
    for what, some in (("skipped", skipped), ("enqueued", jobs), ("unplanned", unplanned)):
        if some:
            model.happened[f"fire: {what}"] += 1
    for id in jobs:
        due_ms, rest = model.planned[call.shard, id]
        if int(due_ms) > model.now_ms + int(call.args[5]):
            model.broken(f"{id!r} was enqueued {int(due_ms) - model.now_ms} ms early")
        _create(model, call, now_ms, id.decode(), due_ms, rest, replaces=False)


def retract(model: Model, call: Call) -> None:
    if not call.reply:
        model.happened["retract: nothing"] += 1
        return
    model.happened["retract: taken back"] += 1
    job = model.live.get((call.shard, call.reply.decode()))
    if job is None or job.gone:
        model.broken(f"{call.reply!r} was taken back, which is gone")
    elif any(delivery.claim or delivery.ended for delivery in job.deliveries.values()):
        model.broken(f"{call.reply!r} was taken back, though it had begun")
    else:
        model.results.cancelled(model, job, call.now_ms)
        job.gone = "cancelled"


# -- attempts


def claim(model: Model, call: Call) -> None:
    if call.reply[0] < 0:
        model.happened["claim: no such group"] += 1
        return
    _leave_alone(model, call)
    if call.reply[0] == 0:
        model.happened["claim: paused"] += 1
        return
    _, now_ms, ttr_ms, _, claims, ids, records, expired, *_ = call.reply
    group, consumer = call.args[1].decode(), call.args[2].decode()
    _check_ttr(model, call, group, ttr_ms)
    late: list[Tracked] = []
    for given, id, record in zip(claims, ids, records, strict=True):
        if given:
            _give(model, call, group, consumer, now_ms, ttr_ms, given, id.decode(), record)
        else:
            model.happened["claim: out of date"] += 1
            late += _late(model, call.shard, id.decode(), group)
    if expired:
        model.happened["claim: expired"] += 1
        model.count(call.shard, "expired", group, expired)
        if expired > len(late):
            model.broken(f"{expired} jobs expired in {group}; only {len(late)} were late")
        for job in late if expired == len(late) else ():
            job.of(group).end("expired", now_ms)
            model.results.ended(model, job, group, "expired", now_ms)


def _leave_alone(model: Model, call: Call) -> None:
    """Entries that their consumer has claimed, and asks for again when it has no room, the topic is paused, or the job
    may not start for another reason: it may run by the answer to the first call.
    """
    group, consumer, asked = call.args[1].decode(), call.args[2].decode(), call.args[7:]
    entries = {
        member[12:].rpartition(b"\x1f")[2]: entry for entry, member in zip(asked[1::3], asked[2::3], strict=True)
    }
    for given, id in zip(call.reply[4], call.reply[5], strict=True):
        job = model.live.get((call.shard, id.decode()))
        if given or job is None or job.gone or job.of(group).ended:
            continue
        delivery = job.of(group)
        held = delivery.claim
        if held is None or held.consumer != consumer or entries.get(id) != (held.proof[1] or held.proof[0]):
            continue
        model.happened["claim: left alone"] += 1
        if model.lost_data or not model.is_held(held, call.now_ms):  # read again in the call without a reply, perhaps,
            delivery.most += 1  # or taken over: that counts as an attempt
            delivery.maybe_lost += 1


def _check_ttr(model: Model, call: Call, group: str, ttr_ms: int) -> None:
    """The group's own, or else the topic's, or else the caller's."""
    fields = model.fields.get(call.shard, {})
    own = fields.get(f"ttr:{group}")
    if own and own != fields.get("ttr"):
        model.happened["claim: a TTR of the group's own"] += 1
    if ttr_ms != int(own or fields.get("ttr") or call.args[4]):
        model.broken(f"{group} in {call.shard} has a TTR of {ttr_ms} ms, and should have {own or fields.get('ttr')!r}")


def _late(model: Model, shard: Shard, id: str, group: str) -> list[Tracked]:
    job = model.live.get((shard, id))
    fits = job is not None and not job.gone and not job.of(group).ended and job.may_be_late(model.now_ms, group)
    return [job] if job and fits else []


def _give(
    model: Model, call: Call, group: str, consumer: str, now_ms: int, ttr_ms: int, claim: bytes, id: str, record: bytes
) -> None:
    serial = json.loads(record.split(b"\n", 7)[7])["n"]
    job = model.live.get((call.shard, id))
    if job is None or job.serial != serial or job.gone:
        model.broken(f"job {serial} ({id}) is claimed in {group}, though it is {job.gone if job else 'not there'}")
        return
    delivery = job.of(group)
    if job.only and group not in job.only:
        model.broken(f"job {serial} is claimed in {group}, though it came back for {job.only} alone")
    if delivery.ended:
        model.broken(f"job {serial} is claimed in {group}, where it is {delivery.ended}")
    if model.now_ms < delivery.due_ms:
        model.broken(f"job {serial} is claimed {delivery.due_ms - model.now_ms} ms early in {group}")
    main, _, rest = claim.partition(b"|")
    given = Claim((main, rest.partition(b"|")[0]), consumer, model.calls_seen, now_ms + (job.ttr_ms or ttr_ms), now_ms)
    held = delivery.claim
    if held and held.consumer == consumer and held.proof == given.proof:
        given.started = held.started  # it asks again, perhaps having got no reply, and gets the same one
        model.happened["claim: the same again"] += 1
    elif held:
        if model.is_held(held, now_ms):  # when calls are gone through again, what had disturbed it is not known
            model.broken(f"job {serial} is claimed by {consumer} in {group}, while it is held: {held}")
        model.happened["claim: taken over"] += 1
        delivery.most += 1
        delivery.maybe_lost += 1
        delivery.lost += held.started
    if job.expire_ms is not None and now_ms > delivery.due_ms + job.expire_ms + 1:
        model.broken(f"job {serial} is claimed in {group}, though it has expired: {delivery}")
    again = held is not None and (held.consumer, held.proof) == (consumer, given.proof)
    flows.claimed(model, job, group, again)
    delivery.claim = given
    model.note_claim(serial, group, consumer)
    model.given[call.shard, group] += 1
    if job.key:
        _check_key(model, job, group, now_ms, again)


def _check_key(model: Model, job: Tracked, group: str, now_ms: int, again: bool) -> None:
    """Jobs that were put in before the limit was set don't count. Nor do aborted ones: no call tells when one of them
    is lost with its consumer.
    """
    limit, pace, since = model.key_limits.get(job.shard, NO_LIMIT)
    if not limit or job.at <= since:
        return
    if pace and not again:
        _check_pace(model, job, group, now_ms, pace)
    if model.paused_keys.get((job.shard, job.key), model.calls_seen) < model.calls_seen:
        model.broken(f"job {job.serial} is claimed in {group}, though its key is paused")
    others = [
        other.serial
        for other in model.jobs_in(job.shard)
        if other.key == job.key
        and other.at > since
        and other.of(group).ended != "aborting"
        and model.is_held(other.of(group).claim, now_ms)
    ]
    model.happened[f"a key at its limit: {len(others) == limit}"] += 1
    if len(others) > limit:
        model.broken(f"job {job.serial} is claimed in {group}, though {limit} of its key may run: {others}")


def _check_pace(model: Model, job: Tracked, group: str, now_ms: int, pace: float) -> None:
    """Starts of a key are spread, but for 50 ms that are made up for. One that was put in before the limit was set may
    have started before: then even the first start that is judged makes up for them.
    """
    limited = job.shard, group, job.key
    free = model.free_from.get(limited, now_ms - LAG_MS)
    if limited in model.free_from and now_ms - free < 5:
        model.happened["a start waited for the rate of its key"] += 1
    if now_ms < free - LAG_MS and not model.clock_was_back:
        model.broken(f"job {job.serial} starts in {group} {free - now_ms:.0f} ms too early for the rate of its key")
    model.free_from[limited] = max(free, now_ms - LAG_MS) + pace


def _accepted(model: Model, call: Call) -> Iterator[tuple[Tracked, Delivery, Sequence[bytes]]]:
    """The claims of a batch that were not refused: the job, its delivery, and the arguments, with the result behind
    them if ``finish`` was given any.
    """
    group, consumer, width = call.args[1].decode(), call.args[4].decode(), _OF_CLAIM[call.name]
    given, results = _without_results(call)
    refused = {abs(number): number < 0 for number in call.reply[1:]}
    for number, start in enumerate(range(_BEFORE_CLAIMS.get(call.name, 5), len(given), width), start=1):
        args = [*given[start : start + width], *results[number - 1 : number]]
        job = model.live.get((call.shard, args[2].decode()))
        delivery = job.of(group) if job else None
        held = delivery.claim if delivery else None
        if refused.get(number):
            _end_aborted(model, call, job, delivery, ((args[0], args[1]), consumer))
            if job:
                model.note_end(job.serial, group, consumer, call.name)
            continue
        if number in refused:
            model.happened[f"{call.name}: refused"] += 1
            continue
        if delivery and delivery.ended == "aborting":
            model.broken(f"{call.name} of {args[:3]} in {group} was accepted, though it was aborted: {delivery}")
        if not job or not delivery or not held or (held.proof, held.consumer) != ((args[0], args[1]), consumer):
            model.broken(f"{call.name} of {args[:3]} in {group} by {consumer} was accepted, but held by {delivery}")
            continue
        model.note_end(job.serial, group, held.consumer, call.name)
        yield job, delivery, args


def _without_results(call: Call) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The arguments, and the results that ``finish`` was given behind them."""
    args = call.args[:-2] if call.args[-1] == b"children" else call.args
    if call.name != "finish" or args[-1] != b"results":
        return args, []
    claims = (len(args) - 6) // (_OF_CLAIM["finish"] + 1)
    end = len(args) - 1 - claims
    return args[:end], args[end:-1]


def _end_aborted(
    model: Model, call: Call, job: Tracked | None, delivery: Delivery | None, proof: tuple[tuple[bytes, bytes], str]
) -> None:
    """The attempt was aborted, and the reply says so; a touch alone leaves it to run."""
    model.happened[f"{call.name}: aborted"] += 1
    held = delivery.claim if delivery else None
    is_its = held is not None and (held.proof, held.consumer) == proof
    if job is None or delivery is None or delivery.ended != "aborting" or not is_its:
        model.broken(f"{call.name} by {proof} was told of an abort, but it is {delivery}")
    elif call.name != "touch":
        delivery.end("cancelled", call.reply[0])
        model.results.ended(model, job, call.args[1].decode(), "cancelled", call.reply[0])


def finish(model: Model, call: Call) -> None:
    for job, delivery, args in _accepted(model, call):
        delivery.end("done", call.reply[0])
        model.results.finished(model, call, job, args[4:])
        model.count(call.shard, "done", call.args[1].decode())
        if call.args[-1] == b"children":
            links.adds(model, job, call.args[-2])


def retry(model: Model, call: Call) -> None:
    group = call.args[1].decode()
    for _, delivery, args in _accepted(model, call):
        snoozed = args[5] == b"-1"
        delivery.open_again(call.reply[0] + int(args[4]))
        model.happened[f"retry: {'snoozed' if snoozed else 'a step' if args[5] == b'1' else 'no step'}"] += 1
        model.count(call.shard, "snoozed" if snoozed else "retried", group)
        if not snoozed:
            delivery.least, delivery.most = delivery.least + 1, delivery.most + 1


def bury(model: Model, call: Call) -> None:
    for job, delivery, args in _accepted(model, call):
        reason = args[4].decode()
        model.happened[f"bury: {reason}"] += 1
        if reason == "crashed" and delivery.maybe_lost < model.deliveries_at_least:
            model.broken(f"job {job.serial} was buried, as if it had been lost {model.deliveries_at_least} times")
        delivery.end("dead", call.reply[0])
        model.results.ended(model, job, call.args[1].decode(), "dead", call.reply[0], b"|".join(args[4:6]))
        delivery.most += 1
        delivery.least += reason != "crashed"  # then its handler was not called
        model.count(call.shard, "dead", call.args[1].decode())


def release(model: Model, call: Call) -> None:
    for _, delivery, _ in _accepted(model, call):
        delivery.claim, delivery.lost = None, 0


def touch(model: Model, call: Call) -> None:
    for _, delivery, args in _accepted(model, call):
        assert delivery.claim is not None
        delivery.claim.until_ms = call.reply[0] + int(args[3])


def remove_consumer(model: Model, call: Call) -> None:
    """What the consumer held goes back; its attempts don't count, unless they were taken over before. If there is more
    to do, only some went back.
    """
    group, consumer = call.args[1].decode(), call.args[2].decode()
    for job in model.jobs_in(call.shard):
        delivery = job.of(group)
        claim = delivery.claim
        if claim is not None and claim.consumer == consumer and call.now_ms < claim.until_ms:
            model.happened["remove_consumer: handed back"] += 1
            is_held = model.is_held(claim, call.now_ms)
            if not is_held:  # perhaps it was taken over while the clock was ahead, or its entry is lost, and it goes on
                delivery.most += 1
                delivery.maybe_lost += 1
            claim.until_ms, delivery.lost = call.now_ms, 0
            if is_held and call.reply == 1:
                delivery.claim = None


def take_over(model: Model, call: Call) -> None:
    """What a silent consumer held for long enough goes back."""
    group, consumer, silent_ms = call.args[1].decode(), call.args[4].decode(), int(call.args[5])
    model.happened[f"take_over: {'some' if call.reply[0] else 'nothing'}"] += 1
    for job in model.jobs_in(call.shard) if call.reply[0] else ():
        claim = job.of(group).claim
        if claim is None or claim.consumer != consumer or call.now_ms - claim.since_ms < silent_ms:
            continue
        if claim.started and model.lives(consumer):
            model.broken(f"job {job.serial} was taken over from {consumer} in {group}, which runs it: {claim}")
        claim.until_ms = min(claim.until_ms, call.now_ms)


# -- what is ready


def move(model: Model, call: Call) -> None:
    moved, now_ms, *_ = call.reply
    topic, rate = call.shard[0], model.rates.get(call.shard, 0.0)
    if moved < 0:
        model.happened["move: other groups" if moved == -1 else "move: no permit"] += 1
    if moved <= 0 or not rate or not model.judges_rates:
        return
    moves = model.moves.setdefault(topic, [])
    moves.append((now_ms, moved))
    within = sum(count for when, count in moves if now_ms - 1000 < when <= now_ms)
    most = math.ceil(rate) + (int(rate / 20) if rate > 20 else 0)
    if within > most:
        model.broken(f"{within} jobs of {topic} became ready within a second, at a rate of {rate}")


def lease(model: Model, call: Call) -> None:
    held, _, processes = call.reply
    if processes < 1:
        model.broken(f"{processes} processes, and one of them has just called")
    name = call.args[0]
    if held:
        model.standbys.discard(name)
    model.happened[
        f"lease: {'elected' if held else 'a standby in its turn' if name in model.standbys else 'a new standby'}"
    ] += 1
    if not held:
        model.standbys.add(name)


STEPS: dict[str, Step] = (
    {"flows": flows.applied}
    | {
        step.__name__: step
        for step in (
            enqueue,
            enqueue_unique,
            enqueue_after,
            links.attach,
            links.deliver,
            links.link_children,
            replace,
            relay,
            relayed,
            lease,
            schedule,
            fire,
            retract,
            claim,
            finish,
            retry,
            bury,
            release,
            touch,
            remove_consumer,
            take_over,
            move,
        )
    }
    | {"claim_ranked": claim, "move_ranked": move}
    | {"GET": read}
    | INTERVENTIONS
)
