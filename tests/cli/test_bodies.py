"""Encoded bodies on the command line: shown with their key, explained without; a rehearsal before a release."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.codec.encrypt import new_key
from tests.cli.conftest import Run, Start
from tests.servers import Server
from tests.waiting import HANG_S

SECRET = "4111-1111-1111-1111"
WORKER = """
from streamdq import Worker
worker = Worker()

@worker.upcast("order.close", since=2)
def with_order_id(body):
    return {"order_id": body["id"]}

@worker.handler("order.close")
async def close(order: dict[str, int]) -> None: ...
"""


def test_a_key_is_new_each_time(run: Run) -> None:
    first, second = run("bodies", "key", "2026-11").out, run("bodies", "key").out
    assert first.startswith("2026-11=")
    assert len(first.strip().partition("=")[2]) == 44
    assert first.partition("=")[2] != second.partition("=")[2]
    assert run("bodies", "key", "a b").code == 2


def test_a_body_is_shown_with_its_key_alone(run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    key = new_key("k1")
    monkeypatch.setenv("STREAMDQ_CODEC", "encrypt")
    monkeypatch.setenv("STREAMDQ_BODY_KEYS", key)
    assert run("enqueue", "t", f'{{"card": "{SECRET}"}}', "--id", "j", "--body-version", "2", "--json").json[
        "body"
    ] == {"card": SECRET}
    assert SECRET in run("get", "t", "j").out
    assert run("get", "t", "j", "--json").json["version"] == 2
    assert not queue.take("t", timeout=0.1)
    monkeypatch.delenv("STREAMDQ_CODEC")
    monkeypatch.delenv("STREAMDQ_BODY_KEYS")
    shown = run("get", "t", "j")
    assert (shown.code, SECRET in shown.out) == (0, False)
    assert "is encrypted with the key 'k1', which is not configured here" in shown.out
    found = run("get", "t", "j", "--json").json
    assert found["body"] is None
    assert found["body_unreadable"].startswith("it is encrypted with the key 'k1'")
    assert run("cancel", "t", "j").code == 0


def test_a_codec_without_its_key_is_a_mistake(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_CODEC", "encrypt")
    refused = run("enqueue", "t", "1")
    assert refused.code == 2
    assert "encrypt needs a key in STREAMDQ_BODY_KEYS" in refused.err


def test_a_rehearsal(redis_server: Server, queue: Queue, start: Start, tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop_jobs.py").write_text(WORKER)
    command = ("--url", redis_server.url, "rehearse", "shop_jobs:worker")

    def rehearse(*options: str) -> tuple[int, str]:
        process = start(*command, *options)
        out, err = process.communicate(timeout=HANG_S)
        return process.returncode, out + err

    queue.enqueue("order.close", {"id": 1}, delay="1h")
    queue.enqueue("order.close", {"order_id": 1}, version=2, delay="1h")
    assert rehearse() == (0, "order.close: 2 checked, 0 refused\n")
    queue.enqueue("order.close", {"order_id": "x"}, version=2, id="bad", delay="1h")
    code, out = rehearse()
    assert code == 1
    assert "order.close: 3 checked, 1 refused" in out
    assert "bad" in out
    assert "unable to parse string as an integer" in out
    code, out = rehearse("--json", "--topic", "order.close", "--limit", "1000")
    assert code == 1
    assert '"refused": 1, "complete": true' in out
    code, out = rehearse("--topic", "order.clsoe")
    assert code == 2
    assert "no handler for 'order.clsoe', only for order.close" in out
    run("topic", "delete", "order.close", "--force", "--yes")


def test_a_sweep(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = run("bodies", "sweep")
    assert (refused.code, "set STREAMDQ_OFFLOAD" in refused.err) == (2, True)
    monkeypatch.setenv("STREAMDQ_CODEC", "offload")
    monkeypatch.setenv("STREAMDQ_OFFLOAD", f"file://{tmp_path}/bodies")
    large = f'"{"x" * 50_000}"'
    assert run("enqueue", "t", large, "--id", "j", "--delay", "1h").code == 0
    assert len(run("get", "t", "j", "--json").json["body"]) == 50_000
    assert run("cancel", "t", "j").code == 0
    assert run("bodies", "sweep", "--older-than", "5m").code == 2
    assert run("bodies", "sweep", "--json").json["files"] == 0
    (hour,) = (tmp_path / "bodies" / "streamdq").iterdir()
    hour.rename(hour.with_name("2020-01-01T00"))
    assert run("bodies", "sweep").out == "1 file, 0 in use, 1 would be deleted with --yes (50,002 bytes)\n"
    assert run("bodies", "sweep", "--yes", "--json").json == {
        "files": 1,
        "used": 0,
        "unused": 1,
        "unused_bytes": 50_002,
        "deleted": 1,
    }
    (tmp_path / "bodies" / "streamdq").rmdir()  # it is empty
    monkeypatch.setenv("STREAMDQ_OFFLOAD", f"file://{tmp_path}/file")
    (tmp_path / "file").write_text("no folder")
    failed = run("enqueue", "t", large)
    assert (failed.code, "the storage of large bodies failed" in failed.err) == (3, True)
