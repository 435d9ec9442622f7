"""examples/callback: the receiver that docs/callbacks.md shows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from streamdq.callback import CallbackSettings
from streamdq.callback.breaker import FIRST_OPEN_S, LONGEST_OPEN_S
from streamdq.callback.client import MOST_REPLY_BYTES
from tests.callback.conftest import caller
from tests.callback.test_signing import A, B, C
from tests.redis.harness import Space

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "callbacks.md").read_text()


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("receiver", ROOT / "examples" / "callback" / "receiver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_it_does_a_job_once_and_refuses_what_is_not_signed(
    space: Space, example: ModuleType, tmp_path: Path
) -> None:
    app = example.application([A, B], tmp_path / "received.sqlite")
    async with TestServer(app) as server:
        url = str(server.make_url("/hooks"))
        space.queue.enqueue("t", {"order": 1}, id="order-1", url=url)
        space.queue.enqueue("u", {"order": 1}, id="order-1", url=url)  # a second call with the same id
        await space.burst(caller(space, "t", "u", secrets={"127.0.0.1": [B]}))
        space.queue.enqueue("t", {"order": 2}, id="order-2", url=url, retry="none")
        await space.burst(caller(space, "t", secrets={"127.0.0.1": [C]}))
        async with aiohttp.ClientSession() as session, session.post(url, data=b"{}") as reply:
            assert reply.status == 401
        done = app[example.DATABASE].execute("SELECT * FROM paid").fetchall()
        app[example.DATABASE].close()
    assert done == [('{"order":1}',)]
    assert space.state("order-1") == space.state("order-1", "u") == "gone"
    assert space.job("order-2").groups["default"].error == "CallbackRejected: HTTP 401 from 127.0.0.1"


def test_the_page_lists_every_setting_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
    known = {
        name: field.get_default(call_default_factory=True) for name, field in CallbackSettings.model_fields.items()
    }
    assert listed.keys() == known.keys()
    for name in ("timeout_s", "per_host", "retry_after_s"):
        assert listed[name] == f"{known[name]:g}", name


def test_the_page_s_numbers_are_the_code_s() -> None:
    assert f"{FIRST_OPEN_S:g} s" in PAGE
    assert f"{LONGEST_OPEN_S:g} s" in PAGE
    assert f"{MOST_REPLY_BYTES // 1024} KiB" in PAGE
