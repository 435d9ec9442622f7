"""streamdq outbox create, relay and reconcile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamdq import Queue
from streamdq.cli import app
from tests.children import child
from tests.extras import run_without
from tests.outbox.orders import TOPIC, Shop, finish
from tests.postgres import PASSWORD, Postgres
from tests.servers import Server, free_port
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from tests.mariadb import Mariadb


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = app.run(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_create(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    for _ in range(2):
        code, out, _err = run(capsys, "outbox", "create", "--from", url)
        assert (code, out) == (0, f"there is an outbox at sqlite:///{tmp_path}/new.db\n")
    assert (tmp_path / "new.db").stat().st_mode & 0o077 == 0


def test_the_statements_for_a_migration(shop: Shop, queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    for table in ("streamdq_outbox", "streamdq_outbox_relays", "streamdq_outbox_schema"):
        shop.sql(f"DROP TABLE {table}")
    code, out, _ = run(capsys, "outbox", "create", "--sql", "--from", shop.url)
    assert code == 0
    assert run(capsys, "outbox", "create", "--sql", "--from", shop.url)[1] == out
    names = set()
    for _ in range(2):
        shop.sql("DROP TABLE IF EXISTS streamdq_outbox_schema")
        with shop.sale() as db:
            for statement in out.split(";\n"):
                if statement.strip():
                    db.exec_driver_sql(statement)
        ((name,),) = shop.sql("SELECT outbox FROM streamdq_outbox_schema")
        assert len(name) == 12
        names.add(name)
    assert len(names) == 2, "two databases would have different names"
    shop.order("a")
    assert run(capsys, "--url", queue._url or "", "outbox", "relay", "--from", shop.url, "--burst")[0] == 0
    assert finish(queue) == ["a"]


def test_a_horizon(shop: Shop, queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """Set twice: by printed statements, one after the other as in a migration, and by the command."""
    code, out, _ = run(capsys, "outbox", "create", "--sql", "--horizon", "2d", "--from", shop.url)
    assert code == 0
    with shop.sale() as db:
        for statement in out.split(";\n"):
            if statement.strip():
                db.exec_driver_sql(statement)
    shop.order("near", delay="30h")
    shop.order("far", delay="9d")
    assert run(capsys, "--url", queue._url or "", "outbox", "relay", "--from", shop.url, "--burst")[1] == "1 relayed\n"
    for _ in range(2):
        code, _, _ = run(capsys, "outbox", "create", "--horizon", "1d", "--from", shop.url)
        assert code == 0
    code, out, _ = run(capsys, "outbox", "stats", "--from", shop.url, "--json")
    found = json.loads(out)
    assert (found["horizon_ms"], found["later"], found["states"]["waiting"]["rows"]) == (86_400_000, 1, 0)
    out = run(capsys, "outbox", "stats", "--from", shop.url)[1]
    assert "later" in out
    assert "rows wait until 1d before they are due" in out
    code, _, err = run(capsys, "outbox", "create", "--horizon", "1s", "--from", shop.url)
    assert (code, "write at least 1m" in err) == (2, True)


def test_relay_and_reconcile(shop: Shop, queue: Queue, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    queue.enqueue(TOPIC, 1, id="taken", delay="1h")
    shop.order("a", "b", "taken")
    words = ("--url", server.url, "outbox")
    code, out, err = run(capsys, *words, "relay", "--from", shop.url, "--burst", "--keep")
    assert (code, out) == (0, "2 relayed, 1 refused (streamdq outbox refused)\n")
    assert "row refused" in err
    server.flush()
    code, out, _ = run(capsys, *words, "reconcile", "--from", shop.url, "--json")
    assert (code, json.loads(out)) == (0, {"relayed": 2, "refused": 0, "ended": 0, "put_back": 2})
    assert finish(queue) == ["a", "b"]
    code, out, _ = run(capsys, *words, "reconcile", "--from", shop.url)
    assert (code, out) == (0, "0 relayed, 2 ended\n")


def test_stats(shop: Shop, queue: Queue, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("outbox", "stats", "--from", shop.url)
    code, out, _ = run(capsys, *words, "--json")
    nothing = {"rows": 0, "oldest_ms": None}
    found = json.loads(out)
    assert (code, found["relay"], found["refused"]) == (0, None, [])
    assert found["states"] == dict.fromkeys(("waiting", "relaying", "kept", "relayed", "refused"), nothing)
    queue.enqueue(TOPIC, 1, id="taken", delay="1h")
    shop.order("a", "taken", delay="1h")
    assert run(capsys, "--url", server.url, "outbox", "relay", "--from", shop.url, "--burst", "--keep")[0] == 0
    shop.order("b", "c")
    shop.sql("UPDATE streamdq_outbox SET made_ms = made_ms - 3600000 WHERE id = 'b'")
    found = json.loads(run(capsys, *words, "--json")[1])
    assert {state: each["rows"] for state, each in found["states"].items()} == {
        "waiting": 2, "relaying": 0, "kept": 1, "relayed": 0, "refused": 1,
    }  # fmt: skip
    assert 3_600_000 <= found["states"]["waiting"]["oldest_ms"] < 7_000_000
    assert found["refused"] == [
        {"number": 2, "topic": TOPIC, "id": "taken", "error": f"JobExists: job 'taken' is already in topic '{TOPIC}'"}
    ]
    code, out, _ = run(capsys, *words)
    assert (code, "no relay is active" in out, "refused because" in out) == (0, True, True)
    shop.sql("UPDATE streamdq_outbox_relays SET holder = 'web-1:7:ab', until_ms = until_ms + 9000000000000")
    assert "relay web-1:7:ab is active" in run(capsys, *words)[1]
    assert json.loads(run(capsys, "--namespace", "other", *words, "--json")[1])["relay"] is None


def test_exit_codes(tmp_path: Path, server: Server, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--url", server.url, "outbox", "relay", "--burst", "--from")
    code, _, err = run(capsys, *words, f"sqlite:///{tmp_path}/none.db")
    assert (code, "no outbox at" in err) == (2, True)
    code, _, err = run(capsys, *words, "postgresql://u:s3cret@127.0.0.1:1/x")
    assert (code, "can't be used" in err, "s3cret" in err) == (3, True, False)
    assert run(capsys, *words, "oracle://host/db")[0] == 2
    shop.sql("UPDATE streamdq_outbox_schema SET version = 7")
    assert run(capsys, *words, shop.url)[0] == 3


@pytest.mark.thorough
def test_without_the_extra() -> None:
    for words in (("create",), ("relay",), ("stats",), ("refused",), ("reconcile",)):
        code, err = run_without(
            "sqlalchemy", "--url", "memory://", "outbox", *words, "--from", "sqlite:////tmp/none.db"
        )
        assert code == 2
        assert "pip install 'streamdq[database]'" in err


def test_it_runs_until_it_is_told_to_stop(shop: Shop, queue: Queue, server: Server) -> None:
    """Redis fails meanwhile; its metrics are served."""
    port = free_port()
    command = [sys.executable, "-m", "streamdq", "--url", server.url, "outbox", "relay", "--metrics-port", str(port)]
    environment = {**os.environ, "STREAMDQ_OUTBOX": shop.url}
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as process:
        shop.order("a")
        until(lambda: shop.states() == {}, "the first is relayed")
        assert finish(queue) == ["a"]
        server.stop()
        shop.order("b")
        assert process.poll() is None
        server.start()
        until(lambda: shop.states() == {}, "the second is relayed")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as answer:
            page = answer.read().decode()
        assert f'streamdq_outbox_rows_total{{namespace="streamdq",outcome="relayed",topic="{TOPIC}"}} 2.0' in page
        assert 'streamdq_outbox_wait_seconds_count{namespace="streamdq"} 2.0' in page
        assert 'streamdq_outbox_waiting_rows{namespace="streamdq"} 0.0' in page
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0
        assert out == "2 relayed\n"
        assert PASSWORD not in err
    assert finish(queue) == ["b"]


@pytest.mark.thorough
@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_it_waits_for_a_database_that_is_away_at_first(shop: Shop, queue: Queue, running: Postgres | Mariadb) -> None:
    shop.order("a")
    shop.close()
    command = [sys.executable, "-m", "streamdq", "--url", queue._url or "", "outbox", "relay"]
    environment = {**os.environ, "STREAMDQ_OUTBOX": shop.url}
    running.stop()
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stderr is not None
        try:
            first = json.loads(process.stderr.readline())
        finally:
            running.start()
        assert first["event"] == "outbox not relayed"
        until(lambda: shop.states() == {}, "the row is relayed")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=HANG_S)[0] == "1 relayed\n"
        assert process.returncode == 0
    assert finish(queue) == ["a"]
