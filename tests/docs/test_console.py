"""What a page shows in a terminal is typed, in its order, and prints what the page shows."""

from __future__ import annotations

import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from streamdq import NewJob, Queue, outbox
from streamdq.codec import Offload
from streamdq.outbox.relay import Relay
from tests.docs.reader import (
    NOT_RUN,
    ROOT,
    Command,
    Reader,
    blocks,
    commands,
    pages,
    why_not_run,
)
from tests.docs.test_pages import FOLLOWED, name_of, page
from tests.servers import Server, binaries
from tests.turns import others_later
from tests.waiting import HANG_S

ELSEWHERE = dict.fromkeys(["README", "any-language", "tour"], "tests/redis/test_readme.py")

WORKER = """\
from streamdq import Worker

worker = Worker()


@worker.handler("order.close")
async def close(order: dict) -> None: ...
"""
SHOP = """\
from pydantic import BaseModel
from streamdq import Worker

worker = Worker()


class Order(BaseModel):
    order_id: int
    currency: str


@worker.upcast("order.close", since=2)
def with_order_id(body: dict) -> dict:
    return body if "order_id" in body else {"order_id": body["id"], "currency": "EUR"}


@worker.handler("order.close")
async def close(order: Order) -> None: ...
"""


def bury(queue: Queue, topic: str, why: str = "card expired") -> None:
    claim = queue.take(topic, group="default", timeout=HANG_S)
    assert claim
    claim.bury(why)


def dead_letters(queue: Queue, _: Path, __: str) -> None:
    for n in (41, 42, 43):
        queue.enqueue("order.close", {"order_id": n}, id=f"order-{n}")
        bury(queue, "order.close")


def bodies_of_all_kinds(queue: Queue, folder: Path, url: str) -> None:
    """Orders, two of which the new code refuses, and old files that no job names."""
    (folder / "shop.py").write_text(SHOP)
    queue.enqueue("order.close", {"number": 90}, id="order-90")
    bury(queue, "order.close", "no")
    queue.enqueue("order.close", {"order_id": 17}, id="order-17", delay="1h")
    dice = random.Random(1)
    orders = ({"order_id": dice.randrange(10**9), "currency": dice.choice(["EUR", "JPY"])} for _ in range(4998))
    queue.enqueue_many("order.close", [NewJob(order, delay="1h") for order in orders])
    with Queue(url, codec=[Offload(f"file://{folder}/bucket/jobs", over=0)]) as large:
        for n in range(2):
            large.enqueue("t", n, id=str(n), delay="1h")
            large.cancel("t", str(n))
    (hour,) = (folder / "bucket/jobs/streamdq").iterdir()
    hour.rename(hour.with_name("2020-01-01T00"))


def jobs_to_find(queue: Queue, _: Path, __: str) -> None:
    queue.enqueue("order.close", {"user": 7}, id="late")
    bury(queue, "order.close")
    for id, user in (("order-42", 7), ("order-43", 8), ("test-1", 9)):
        queue.enqueue("order.close", {"user": user}, id=id, delay="1h")


def some_history(queue: Queue, _: Path, __: str) -> None:
    for n in range(3):
        queue.enqueue("order.close", n, id=f"order-{41 + n}")
        claim = queue.take("order.close", timeout=HANG_S)
        assert claim
        claim.finish()


def shop(queue: Queue, folder: Path, __: str) -> None:
    (folder / "shop").mkdir()
    (folder / "shop/jobs.py").write_text(WORKER)
    for topic in ("order.close", "TOPIC"):
        queue.enqueue(topic, {}, key="merchant-7", delay="1h")


def an_outbox(queue: Queue, folder: Path, __: str) -> None:
    """Nine rows that were relayed, the last five of them kept, and one whose id is taken."""
    url = f"sqlite:///{folder}/shop.db"
    engine = create_engine(url)
    with engine.begin() as db:
        outbox.create(db)
    queue.enqueue("order.close", {"order_id": 42}, delay="1h", id="order-42")
    for keep, rows in ((False, 4), (True, 5)):
        with engine.begin() as db:
            for n in range(rows):
                outbox.enqueue(db, "order.close", {"order_id": n}, delay="1h")
        with Relay(url, queue, keep=keep) as relay:
            relay.run(burst=True)
    with engine.begin() as db:
        outbox.enqueue(db, "order.close", {"order_id": 42}, delay="1h", id="order-42")
    with Relay(url, queue, keep=True) as relay:
        relay.run(burst=True)
    engine.dispose()


@pytest.fixture(scope="module")
def durable_redis() -> Iterator[Server]:
    """One that `streamdq doctor` finds in order."""
    if not binaries():
        pytest.skip("no Redis server on this machine")
    with Server(binaries()[0], appendonly=True) as running:
        yield running


@pytest.fixture
def redis(durable_redis: Server) -> Server:
    durable_redis.flush()
    return durable_redis


def nothing(_: Queue, __: Path, ___: str) -> None:
    pass


@dataclass(frozen=True)
class Shown:
    """A page: what it takes for granted, and what differs here from what it shows."""

    before: Callable[[Queue, Path, str], None] = nothing
    serves: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)
    varies: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)


POSTGRES = {"postgresql://user:password@host": "sqlite:///{folder}"}
FOLDERS = {"/var/lib/streamdq/history": "{folder}/history", "s3://bucket": "file://{folder}/bucket"}
SECRETS = {"whsec_NEW…": f"whsec_{'N' * 32}", "whsec_OLD…": f"whsec_{'O' * 32}", "whsec_…": f"whsec_{'S' * 32}"}

SHOWN = {
    "analytics": Shown(some_history),
    "archive": Shown(dead_letters, instead={f"{url}/jobs": f"{ours}/jobs.db" for url, ours in POSTGRES.items()}),
    "bodies": Shown(),
    "body-versions": Shown(
        bodies_of_all_kinds,
        # In any order.
        varies={"streamdq rehearse": r"order-17 delayed currency: Field required|order-90 dead KeyError: 'id'"},
        exits={"streamdq rehearse": 1},
    ),
    "backup": Shown(shop),
    "callbacks": Shown(instead=SECRETS),
    "cluster-analytics": Shown(),
    "what-if": Shown(),
    "deploying": Shown(shop, instead={"/tmp/streamdq-health": "{folder}/health"}),
    "embedded": Shown(),
    "find": Shown(jobs_to_find, serves=True),
    "history": Shown(some_history, instead=FOLDERS),
    "http": Shown(),
    "managed": Shown(),
    "operations-page": Shown(),
    "mcp": Shown(),
    "security": Shown(),
    "serve": Shown(),
    "kubernetes": Shown(shop),
    "large-bodies": Shown(bodies_of_all_kinds, instead=FOLDERS, varies={"streamdq bodies sweep": r"[\d,]+"}),
    "metrics": Shown(shop),
    "monitoring": Shown(shop),
    "operations": Shown(shop),
    "shards": Shown(shop),
    "outbox": Shown(
        an_outbox,
        instead={f"{url}/shop": f"{ours}/shop.db" for url, ours in POSTGRES.items()},
        # A new horizon takes the lease from the relay, which then takes it again.
        varies={"streamdq outbox stats": r"(?:relay CONSUMER|no relay) is active"},
    ),
    "personal-data": Shown(jobs_to_find, exits={"streamdq erase --key merchant-7": 1}),  # has no archive, and no dump
    "redis": Shown(),
    "reference/simulation": Shown(),
    "reliability": Shown(),
    "results": Shown(),
    "schedules": Shown(),
}
"""Pages whose commands are typed in a folder and a Redis of their own. Those of FOLLOWED are typed there."""


def every_command() -> Iterator[tuple[str, Command]]:
    for path in pages():
        for block in blocks(path):
            if block.language == "console":
                for command in commands(block):
                    yield name_of(path), command


def test_each_page_with_commands_is_typed_by_a_test() -> None:
    assert {name for name, _ in every_command()} == SHOWN.keys() | (FOLLOWED.keys()) | ELSEWHERE.keys()
    assert all((ROOT / file).is_file() for file in ELSEWHERE.values())


def test_commands_are_in_blocks_of_a_terminal_only() -> None:
    for path in pages():
        for block in blocks(path):
            if block.language in ("", "sh", "bash", "shell", "text"):
                assert not re.search(r"^(?:\$ |streamdq |pip |make |export |curl )", block.text, re.MULTILINE), path


def test_what_is_not_run_is_on_a_page_and_has_a_reason() -> None:
    lines = [command.line for _, command in every_command()]
    for begins, why in NOT_RUN.items():
        assert any(why_not_run(line) == why for line in lines), begins
        assert all((ROOT / file).is_file() for file in re.findall(r"tests/\S+\.py", why)), begins


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize("name", others_later(SHOWN, "operations"))
def test_a_page_s_commands_do_what_it_shows(name: str, redis: Server, tmp_path: Path) -> None:
    shown = SHOWN[name]
    instead = {theirs: ours.format(folder=tmp_path) for theirs, ours in shown.instead.items()}
    reader = Reader(tmp_path, redis.url, instead, shown.varies, shown.exits)
    with Queue(redis.url) as queue:
        shown.before(queue, tmp_path, redis.url)
    try:
        for block in blocks(page(name)):
            if block.file:
                reader.write(block)
        if shown.serves:
            reader.type("streamdq serve &")
        for block in blocks(page(name)):
            if block.language == "console":
                reader.enter(block)
    finally:
        if sys.exc_info()[0] is not None:
            sys.stderr.write(reader.seen)
            reader.kill()
    reader.stop()
