"""Single keys of the namespace (the mover's lease, heartbeats, the signing secret, sessions of the web page,
dumps), and Redis's time and INFO. An operation is one command, unless its docstring says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256

from redis.exceptions import ResponseError

from ..errors import ServerUnavailable
from ..link.command import Command
from ..link.session import Op, Session, checked
from ..times.clock import wall_s
from .commands import in_steps, one

# -- Redis itself


def redis_time_us(session: Session) -> Op[int]:
    """Redis's own clock: microseconds since 1970, whatever clock the session has."""
    seconds, micros = yield from one(session, session.keys.mover, "TIME")
    return int(seconds) * 1_000_000 + int(micros)


def now_ms(session: Session) -> Op[int]:
    """The time by which jobs are due, in Unix milliseconds: Redis's, or that of the session's own clock."""
    given = session.clock.argument()
    return int(given) if given else (yield from redis_time_us(session)) // 1000


def redis_info(session: Session, within_s: float = float("inf")) -> Op[dict[str, str]]:
    """The fields of INFO."""
    text: bytes = yield from one(session, session.keys.mover, "INFO", within_s=within_s)
    lines = (line.partition(":") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines}


def snapshots(session: Session, within_s: float = float("inf")) -> Op[str]:
    """When Redis writes snapshots (RDB), such as ``3600 1 300 100``; ``""``: never."""
    reply = yield from one(session, session.keys.mover, "CONFIG", "GET", "save", within_s=within_s)
    found: dict[bytes, bytes] = dict(zip(reply[::2], reply[1::2], strict=True))
    return found.get(b"save", b"?").decode()


def write_probe(session: Session, keep_ms: int) -> Op[None]:
    """Writes a key for this purpose only; fails if Redis refuses writes."""
    key = session.keys.probe
    yield from one(session, key, "SET", key, "1", "PX", keep_ms)


def lacks_looks(session: Session, keys: Sequence[str]) -> Op[list[str]]:
    """Why this user could not wait for changes of keys, with CLIENT TRACKING, on the Cluster's nodes of these keys; one
    call for each node. One that does not answer is left out.
    """
    nodes = {session.last_node_of(key): key for key in keys}
    found: list[str] = []
    for key in nodes.values():
        try:
            (reply,) = yield from session.call([Command(key, ("CLIENT", "TRACKING", "OFF"))])
        except ServerUnavailable:
            continue
        found += [str(reply)] if isinstance(reply, ResponseError) else []
    return list(dict.fromkeys(found))


# -- who is alive


MISSED_S = 5
"""A standby that is so late for its turn is dead: as in the script ``lease``."""


def mover_at_work(session: Session) -> Op[str | None]:
    """The consumer whose mover is active, or None."""
    name: bytes | None = yield from one(session, session.keys.mover, "GET", session.keys.mover)
    return None if name is None else name.decode()


def skew_and_mover(session: Session) -> Op[tuple[float, str | None]]:
    """How many seconds this host's clock is ahead of Redis's, assuming that Redis read its clock in the middle of the
    round trip; and the result of mover_at_work. One call.
    """
    key, began, at_s = session.keys.mover, time.monotonic(), wall_s()
    replies = yield from session.call([Command(key, ("TIME",)), Command(key, ("GET", key))])
    middle_s = at_s + (time.monotonic() - began) / 2
    (seconds, micros), name = map(checked, replies)
    return middle_s - int(seconds) - int(micros) / 1e6, None if name is None else name.decode()


def alive(session: Session) -> Op[frozenset[str]]:
    """The consumers of processes that take part in the election: that of the active mover, and those of the standbys
    that have not missed their turn. One call; none if the node with the lease is lost.
    """
    mover, standbys = session.keys.mover, session.keys.standbys
    asked = [("TIME",), ("GET", mover), ("ZRANGE", standbys, 0, -1, "WITHSCORES")]
    try:
        replies = yield from session.call([Command(mover, args) for args in asked])
    except ServerUnavailable:
        if not session.is_cluster:
            raise
        return frozenset()
    (seconds, _), name, turns = map(checked, replies)
    missed_ms = (int(seconds) - MISSED_S) * 1000
    found = [one for one, turn_ms in zip(turns[::2], turns[1::2], strict=True) if float(turn_ms) >= missed_ms]
    return frozenset(one.decode() for one in (*found, *([] if name is None else [name])))


def prolong_lease(session: Session, ms: int) -> Op[str | None]:
    """Prolongs the mover's lease for its present holder; returns the holder, or None.

    A plain command costs a fraction of a script, and is not refused at the memory limit.
    """
    key = session.keys.mover
    name: bytes | None = yield from one(session, key, "GETEX", key, "PX", ms)
    return None if name is None else name.decode()


def notify_standbys(session: Session, name: str) -> Op[None]:
    """The mover's lease is free: all standbys look."""
    key = session.keys.mover_stopped
    yield from one(session, key, "XADD", key, "MAXLEN", 1, "*", "mover", name)


def leave_standbys(session: Session, name: str) -> Op[None]:
    """The process stops, so another standby may have its turn."""
    key = session.keys.standbys
    yield from one(session, key, "ZREM", key, name)


def drop_heartbeat(session: Session, consumer: str) -> Op[None]:
    """The consumer leaves: nobody expects a heartbeat from it any more."""
    key = session.keys.heartbeats
    yield from one(session, key, "ZREM", key, consumer)


def heartbeats_of(session: Session, consumers: Sequence[str]) -> Op[list[int | None]]:
    """When each sent its last heartbeat, in ms; None: none is known, as of one that holds no claims for a day."""
    key = session.keys.heartbeats
    replies = yield from in_steps(session, [Command(key, ("ZSCORE", key, name)) for name in consumers])
    return [None if (score := checked(reply)) is None else int(float(score)) for reply in replies]


def tell_hung(session: Session, consumer: str, hung: int, slots: int, kept_ms: int) -> Op[None]:
    """How many threads of a worker hang beyond their TTR, of so many slots; holds for so long."""
    key = session.keys.hung(consumer)
    if hung:
        yield from one(session, key, "SET", key, f"{hung} {slots}", "PX", kept_ms)
    else:
        yield from one(session, key, "DEL", key)


def hung_of(session: Session, consumers: Sequence[str]) -> Op[list[tuple[int, int]]]:
    """How many threads of each hang beyond their TTR, and how many slots it has; (0, 0) if it has reported none."""
    keys = [session.keys.hung(name) for name in consumers]
    replies = yield from in_steps(session, [Command(key, ("GET", key)) for key in keys])
    return [(0, 0) if (found := checked(reply)) is None else _hung(found.decode()) for reply in replies]


def _hung(text: str) -> tuple[int, int]:
    hung, slots = text.split()
    return int(hung), int(slots)


def wake_all(session: Session, topics: Sequence[str], most: int) -> Op[None]:
    """Tells all processes that these topics have changed, as scripts do that change them. One call."""
    key = session.keys.wake
    wakeups = [Command(key, ("XADD", key, "MAXLEN", most, "*", "topic", topic)) for topic in topics]
    for reply in (yield from session.call(wakeups)):
        checked(reply)


# -- for the HTTP server


def keep_secret(session: Session, mine: str) -> Op[str]:
    """The stored secret. If there is none, as Redis may have lost it, stores ``mine``. Two calls."""
    key = session.keys.secret
    yield from one(session, key, "SET", key, mine, "NX")
    kept: bytes = yield from one(session, key, "GET", key)
    return kept.decode()


def begin_session(session: Session, key: str, token_hash: str, length_s: int, most: int) -> Op[None]:
    """Stores a session of the web page (NamespaceKeys.session), which stands for the token with this hash. Of more than
    ``most`` sessions of a token, the oldest ends.
    """
    all_of, now_s = session.keys.sessions(sha256(token_hash.encode()).hexdigest()), wall_s()
    replies = yield from session.call(
        [
            Command(key, ("SET", key, token_hash, "PX", length_s * 1000)),
            Command(all_of, ("ZADD", all_of, now_s + length_s, key)),
            Command(all_of, ("PEXPIRE", all_of, length_s * 1000)),
            Command(all_of, ("ZRANGE", all_of, 0, -most - 1)),
        ]
    )
    for oldest in list(map(checked, replies))[-1]:
        name = oldest.decode()
        for reply in (yield from session.call([Command(name, ("DEL", name)), Command(all_of, ("ZREM", all_of, name))])):
            checked(reply)


def session_token(session: Session, key: str) -> Op[str | None]:
    """The hash of the session's token; None if the session has ended."""
    found: bytes | None = yield from one(session, key, "GET", key)
    return None if found is None else found.decode()


def end_session(session: Session, key: str) -> Op[bool]:
    """Whether there was one. From now on it does not count among its token's."""
    if (token_hash := (yield from session_token(session, key))) is None:
        return False
    all_of = session.keys.sessions(sha256(token_hash.encode()).hexdigest())
    replies = yield from session.call([Command(key, ("DEL", key)), Command(all_of, ("ZREM", all_of, key))])
    ended, _ = map(checked, replies)
    return bool(ended)


# -- registered dumps


def dumps_of(session: Session, topic: str) -> Op[set[str]]:
    """The dumps that keep the history of all shards of the topic that are made from now on."""
    places = yield from _dump_places(session)
    return {id for id, _, only in places if only in ("", topic)}


def add_dump(session: Session, id: str, topics: Sequence[str]) -> Op[None]:
    """Has shards that are made from now on keep their history for the dump: of these topics, or of all. One command if
    it is known.
    """
    key = session.keys.dumps
    wanted = [f"{id}:{topic}" for topic in topics] if topics else [id]
    known = {"".join(place) for place in (yield from _dump_places(session))}
    if missing := [field for field in wanted if field not in known]:
        yield from one(session, key, "HSET", key, *(part for field in missing for part in (field, "")))


def remove_dump(session: Session, id: str, topics: Sequence[str] = ()) -> Op[bool]:
    """Ends that for these topics, or for all. Returns whether there was such a dump. Two commands."""
    key = session.keys.dumps
    places = yield from _dump_places(session)
    found = ["".join(place) for place in places if place[0] == id and (not topics or place[2] in topics)]
    return bool(found and (yield from one(session, key, "HDEL", key, *found)))


def _dump_places(session: Session) -> Op[list[tuple[str, str, str]]]:
    """Of each dump its id, and ':' and a topic if it does not dump all."""
    key = session.keys.dumps
    fields: list[bytes] = yield from one(session, key, "HKEYS", key)
    return [field.decode().partition(":") for field in fields]
