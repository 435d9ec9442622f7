"""`streamdq callback`."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from tests.callback.receiver import Receiver
from tests.callback.test_signing import A
from tests.extras import run_without
from tests.forked import Forked
from tests.servers import Server


@pytest.fixture
def server(newest: Server) -> Server:
    return newest


async def carried_out(*arguments: str, **environment: str) -> tuple[int | None, str]:
    """Exit code and stderr of the command line in a process of its own."""
    process = Forked(
        "streamdq", *arguments, env={**os.environ, **environment}, imports=["streamdq.callback.worker"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, message = await asyncio.to_thread(process.communicate, timeout=60)
    finally:
        process.kill()
    return process.returncode, message


@pytest.mark.parametrize("options", [[], pytest.param(["--processes", "2"], marks=pytest.mark.thorough)])
async def test_it_calls_back_and_leaves(server: Server, receiver: Receiver, tmp_path: Path, options: list[str]) -> None:
    settings = tmp_path / "callback.toml"
    settings.write_text(f'[secrets]\n"127.0.0.1" = ["{A}"]\n')
    with Queue(server.url) as queue:
        for topic in ("a", "b"):
            queue.enqueue(topic, 1, id=topic, url=receiver.url)
    code, message = await carried_out(
        "--url", server.url, "callback", "--topic", "all", "--settings", str(settings), "--burst", *options,
        STREAMDQ_CALLBACK_ALLOW="127.0.0.1",
    )  # fmt: skip
    assert (code, sorted(receiver.ids)) == (0, ["a", "b"]), message
    assert all("webhook-signature" in request.headers for request in receiver.requests)
    assert A not in message


async def test_without_a_setting_loopback_is_refused(server: Server, receiver: Receiver) -> None:
    with Queue(server.url) as queue:
        queue.enqueue("t", 1, id="j1", url=receiver.url)
        code, message = await carried_out("--url", server.url, "callback", "--topic", "t", "--burst")
        assert [dead.id for dead in queue.dead("t")] == ["j1"]
        assert (code, receiver.connections) == (0, 0)
        assert "the address 127.0.0.1 is refused: loopback" in message
        queue.kick("t", "j1")
        code, _ = await carried_out("--url", server.url, "callback", "--topic", "t", "--allow", "127.0.0.1", "--burst")
        assert (code, receiver.ids) == (0, ["j1"])


def test_an_error_of_a_secret_names_its_host_and_hides_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "callback.toml"
    settings.write_text('[secrets]\n"shop.example" = ["hunter2hunter2"]\n')
    assert cli.run(["--url", "redis://unused", "callback", "--topic", "t", "--settings", str(settings)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("streamdq: callback settings: secrets.shop.example: one secret is not whsec_ and 24 to 64")
    assert "hunter2" not in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass --topic once or more"),
        (["--topic", "all", "--topic", "t"], "pass --topic once or more"),
        (["--topic", "t", "--allow", "127.1"], "'127.1' is neither a host name nor a network"),
        (["--topic", "t", "--settings", "/no/such/file"], "/no/such/file can't be read"),
        (["--topic", "a b"], "topic: 'a b' is not a valid name"),
        (["--topic", "t", "--topic", "t"], "'t' has a handler already"),
        (["--topic", "t", "--log-level", "loud"], "log-level"),
        (["--topic", "t", "--concurrency", "0"], "--concurrency"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert cli.run(["--url", "redis://unused", "callback", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.thorough
def test_a_missing_extra_is_named() -> None:
    message = "streamdq: callbacks need aiohttp: pip install 'streamdq[http]'\n"
    assert run_without("aiohttp", "--url", "redis://unused", "callback", "--topic", "t") == (2, message)
