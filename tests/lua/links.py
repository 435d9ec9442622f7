"""Jobs that wait for others, in tests of scripts: what must be true of their keys, and how tests make and tell them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from streamdq.job.job import NewJob
from streamdq.store.jobs.links import Attached, Ending, Known, News, dependencies, follower
from streamdq.store.jobs.records import Encoded, encode

if TYPE_CHECKING:
    from tests.lua.shard import Shard

MARK = b"\x1f"
NEVER = b"9999999999999"
_PER_FIELD = 500
_HEAD = re.compile(rb"(\d+)\|(\d+)\|(\d+)\|(\d+)\|(block|run|cancel)(?:\+|=\d+!?)?\|(\d+)(\+?)")
_STATES = re.compile(rb"([.odcrepagl]*)((?:,\d+=\d+)*)")
_FOLLOWERS = re.compile(
    rb"([^|\n]+)\|(\d+)\|([a-z]*)\+?[*&]?(?:\|[a-z,]+)?\n"
    rb"((?:\d+(?:\+[^\x1f\n]*)?\x1f[^\x1f\n]+\x1f\d+\x1f(?:\d+|\+\w+)\x1f[^\x1f\n]+\x1f[^\x1f\n]+\n)+)"
)


class Links(NamedTuple):
    """The keys of followers and dependents, as they are in Redis."""

    followers: dict[bytes, bytes]
    dependencies: dict[bytes, bytes]
    endings: dict[bytes, bytes]
    dependents: dict[bytes, bytes]
    blocked: dict[bytes, bytes]


def contradicting(
    links: Links, records: Mapping[bytes, bytes], progress: Mapping[bytes, Mapping[bytes, Any]], counted: int
) -> Iterator[str]:
    """What does not fit together. ``counted``: how many jobs wait for others, by the counter."""
    yield from _of_followers(links, records, progress)
    heads = {field: text for field, text in links.dependencies.items() if field.count(MARK) == 1}
    if heads.keys() != links.dependents.keys():
        yield f"known {heads.keys()}, to be looked at {links.dependents.keys()}"
    for field in links.dependencies:
        if MARK.join(field.split(MARK)[:2]) not in heads:
            yield f"{field!r} belongs to nobody"
    for member, head in heads.items():
        yield from _of_head(links, member, head, records)
    waiting = {id + MARK + record.split(b"\n")[4] for id, record in records.items() if record[12:25] == NEVER}
    if waiting - heads.keys():
        yield f"{waiting - heads.keys()} wait, and nothing tells for what"
    if len(waiting) != counted:
        yield f"{len(waiting)} wait, counted are {counted}"
    if links.blocked.keys() - waiting:
        yield f"{links.blocked.keys() - waiting} are blocked, and don't wait"


def _of_followers(
    links: Links, records: Mapping[bytes, bytes], progress: Mapping[bytes, Mapping[bytes, Any]]
) -> Iterator[str]:
    children = [field for field in links.followers if field.endswith(MARK + b"+")]
    yield from _of_children(links, children)
    for field in links.followers.keys() - children:
        text = links.followers[field]
        found = _FOLLOWERS.fullmatch(text)
        if not found:
            yield f"followers of {field!r}: {text!r}"
            continue
        how = found[3]
        if MARK not in field:
            is_dead = any(of[field].state == b"d" for of in progress.values() if field in of)
            if field not in records or how not in (b"", b"dead", b"purged", b"archived", b"expired", b"cancelled"):
                yield f"followers of {field!r}, which is not there: {text!r}"
            elif (how == b"dead") != is_dead and how in (b"", b"dead"):
                yield f"followers of {field!r}, which is {'dead' if is_dead else 'not dead'}: {text!r}"
        elif how in (b"", b"dead") and b"~" not in field:  # a gate of a flow
            yield f"{field!r} has left, and its followers don't know: {text!r}"
        if how and field not in links.endings:
            yield f"nobody tells the followers of {field!r}: {text!r}"
    if links.endings.keys() - links.followers.keys():
        yield f"{links.endings.keys() - links.followers.keys()} have ended, and nobody waits"


def _of_children(links: Links, fields: Iterable[bytes]) -> Iterator[str]:
    for field in fields:
        of = links.followers.get(field[:-2]) or links.followers.get(field.split(MARK)[0]) or b""
        if b"*" not in of.split(b"\n")[0]:
            yield f"{field!r}: children that nobody puts in"


def _of_head(links: Links, member: bytes, head: bytes, records: Mapping[bytes, bytes]) -> Iterator[str]:
    found = _HEAD.fullmatch(head)
    if not found:
        yield f"{member!r}: {head!r}"
        return
    total, done, failed = map(int, found.groups()[:3])
    letters, places = b"", dict[bytes, int]()
    for n in range(-(-total // _PER_FIELD)):
        others, states = (links.dependencies.get(b"%b\x1f%d%b" % (member, n, end)) for end in (b"", b"\x1fs"))
        form = _STATES.fullmatch(states or b"?")
        if others is None or form is None:
            yield f"{member!r}: {others!r}, {states!r}"
            return
        if len(form[1]) != len(others.split(b"\n")):
            yield f"{member!r}: {others!r}, {states!r}"
        lives = [line.split(MARK)[2] for line in others.split(b"\n")]
        places |= {life: len(letters) + i for i, life in enumerate(lives) if life.startswith(b"+")}
        letters += form[1]
    start = member + MARK + b"+"
    stored = {life: int(i) for field, text in links.dependencies.items() if field.startswith(start)
              for life, i in re.findall(rb"(\+\w+)=(\d+);", text)}  # fmt: skip
    if stored != places or bool(found[7]) != bool(places):
        yield f"{member!r}: {head!r}, added are {places}, and known as {stored}"
    counted = Counter(
        "done" if letter == ord("o") else "open" if letter == ord(".") else "failed" for letter in letters
    )
    if (len(letters), counted["done"], counted["failed"]) != (total, done, failed):
        yield f"{member!r}: {head!r}, but {letters!r}"
    id, nonce = member.split(MARK)
    record = records.get(id, b"")
    if record[12:25] != NEVER or record.split(b"\n")[4] != nonce:
        return
    on_failure = found[5]
    if done == total or (on_failure == b"run" and done + failed == total) or (on_failure == b"cancel" and failed):
        yield f"{member!r} waits for nothing: {head!r}"
    if (member in links.blocked) != (on_failure == b"block" and failed > 0):
        yield f"{member!r} is {'' if member in links.blocked else 'not '}blocked: {head!r}"


class Linked:
    """Makes jobs of a shard wait for others of it, and tells what has ended."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.made: dict[str, Encoded] = {}

    def links(self) -> Links:
        k = self.shard.k
        hashes = [self.shard.redis("HGETALL", key) for key in (k.followers, k.dependencies)]
        zsets = [self.shard.redis("ZRANGE", key, 0, -1, "WITHSCORES") for key in (k.endings, k.dependents, k.blocked)]
        return Links(*(dict(zip(flat[::2], flat[1::2], strict=True)) for flat in (*hashes, *zsets)))

    def encoded(self, id: str, *parents: str, **options: Any) -> Encoded:
        made = encode(NewJob({"id": id}, id=id, after=[("t", parent) for parent in parents], **options), 1000)
        self.made[id] = made
        return made

    def attach(self, id: str, *parents: str, lives: Mapping[str, str] | None = None) -> list[Attached]:
        """Says that the job waits for the others."""
        nonce = self.made[id].nonce
        args = [
            value
            for i, parent in enumerate(parents)
            for value in (parent, (lives or {}).get(parent, ""), follower("t", 0, i, nonce, id))
        ]
        found: list[Attached] = self.shard.call("attach", None, args)
        return found

    def put(
        self, id: str, *parents: str, how: str = "keep", known: list[Attached] | None = None, **options: Any
    ) -> Any:
        """A job that waits for the others."""
        made = self.encoded(id, *parents, **options)
        known = self.attach(id, *parents) if known is None else known
        assert made.waits is not None
        said = [Known("t", 0, parent, *one) for parent, one in zip(parents, known, strict=True)]
        return self.shard.call("enqueue_after", 1, how, (made.id, made.rest), dependencies(made.waits, said))

    def endings(self) -> list[Ending]:
        return list(self.shard.call("endings", 100).endings)

    def tell(self, again_ms: int = 30_000) -> list[int]:
        """Tells all followers of what has ended, and notes that."""
        codes: list[int] = []
        for ending in self.endings():
            news = [News(f.id, f.nonce, f.place, ending.generation, ending.how) for f in ending.followers]
            notified = self.shard.call("deliver", news)
            gone = "\n".join(f.line for f, code in zip(ending.followers, notified, strict=True) if code == 0)
            at_ms = int(self.shard.clock.argument()) + again_ms
            self.shard.call("delivered", [ending.field, ending.generation, at_ms, gone])
            codes += notified
        return codes

    def news(self, id: str, index: int, how: str, generation: int, seen: int | None = None) -> int:
        """Tells a job one thing."""
        (code,) = self.shard.call("deliver", [News(id, self.made[id].nonce, index, generation, how, seen)])
        return int(code)

    def head(self, id: str) -> str:
        """What is known of what it waits for; '' = nothing."""
        text = self.shard.redis("HGET", self.shard.k.dependencies, f"{id}\x1f{self.made[id].nonce}")
        return text.decode() if text else ""

    def states(self, id: str, n: int = 0) -> str:
        text = self.shard.redis("HGET", self.shard.k.dependencies, f"{id}\x1f{self.made[id].nonce}\x1f{n}\x1fs")
        return text.decode() if text else ""

    def is_blocked(self, id: str) -> bool:
        score = self.shard.redis("ZSCORE", self.shard.k.blocked, f"{id}\x1f{self.made[id].nonce}")
        return score is not None
