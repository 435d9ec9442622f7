"""Rows that can't be relayed: they hold up nothing, and somebody decides what becomes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamdq import Queue
from streamdq.cli import app
from streamdq.outbox import rows
from streamdq.outbox.refused import RefusedRows
from streamdq.outbox.relay import Relay, Totals
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.servers import Server
from tests.turns import others_later

INVALID: list[dict[str, Any]] = [
    {"topic": "a b"}, {"topic": "{x}"}, {"topic": ""}, {"topic": "x" * 255 + "ü"}, {"id": "a\nb"}, {"id": " "},
    {"body": "nope{"}, {"body": "null"}, {"body": '""'}, {"body": "[1,\n2]"}, {"body": ""},
    {"ttr_ms": 0}, {"expire_ms": -1}, {"delay_ms": -1}, {"delay_ms": 10**15}, {"delay_ms": None},
    {"due_ms": 2_000_000_000_000}, {"delay_ms": None, "due_ms": 2_000_000_000}, {"made_ms": 1_700_000_000},
    {"retry": "never mind"},
    {"retry": "1s\n2s"}, {"nonce": "a\nb"}, {"nonce": "a" * 256}, {"url": "ftp://x"}, {"job_key": "a\tb"},
    {"on_conflict": "panic"},
]  # fmt: skip


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("given", others_later(INVALID, *INVALID[::3]), ids=lambda given: str(given)[:30])
def test_a_row_that_enqueue_would_not_write(
    shop: Shop, relay: Relay, queue: Queue, server: Server, given: dict[str, Any]
) -> None:
    """Another program may have inserted it."""
    shop.order("bad")
    shop.order("good")
    shop.sql(f"UPDATE streamdq_outbox SET {', '.join(f'{name} = :{name}' for name in given)} WHERE number = 1", **given)
    relay.run(burst=True)
    assert finish(queue) == ["good"]
    ((number, state, error),) = shop.sql("SELECT number, state, error FROM streamdq_outbox")
    assert (number, state) == (1, "refused")
    assert error.startswith("InvalidInput: ")
    assert relay.totals == Totals(relayed=1, refused=1)
    assert set(queue.stats().topics) == {TOPIC}
    assert receipts(server) == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("given", [{"ttr_ms": 1}, {"expire_ms": 0}, {"retry": "1s 2s"}, {"nonce": "äb"}])
def test_one_that_another_program_has_written_well(
    shop: Shop, relay: Relay, queue: Queue, given: dict[str, Any]
) -> None:
    shop.order("fine")
    shop.sql(f"UPDATE streamdq_outbox SET {', '.join(f'{name} = :{name}' for name in given)}", **given)
    relay.run(burst=True)
    assert queue.get(TOPIC, "fine") is not None
    queue.cancel(TOPIC, "fine")


LONG: list[dict[str, Any]] = [{name: "x" * 100_000} for name in ("ttr_ms", "made_ms", "on_conflict", "retry", "id")]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("given", LONG, ids=lambda given: str(given)[:30])
def test_the_error_shows_the_beginning_of_a_long_value(shop: Shop, relay: Relay, given: dict[str, Any]) -> None:
    """SQLite keeps a text in a column for numbers, too."""
    shop.order("bad")
    shop.sql(f"UPDATE streamdq_outbox SET {', '.join(f'{name} = :{name}' for name in given)}", **given)
    relay.run(burst=True)
    ((error,),) = shop.sql("SELECT error FROM streamdq_outbox")
    assert len(error) < 300


def test_many_that_are_not_valid_hold_up_nothing(
    shop: Shop, relay: Relay, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BATCH", 4)
    shop.order(*[f"bad{number}" for number in range(10)])
    shop.sql("UPDATE streamdq_outbox SET body = 'nope'")
    shop.order("good")
    relay.run(burst=True)
    assert finish(queue) == ["good"]
    assert shop.states() == {"refused": 10}


# -- the commands


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = app.run(("outbox", *arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def refused(shop: Shop, relay: Relay, queue: Queue) -> Shop:
    """Rows 1 to 3, whose ids are taken."""
    for id in ("a", "b", "c"):
        queue.enqueue(TOPIC, "first", id=id, delay="1h")
    shop.order("a", "b", "c")
    relay.run(burst=True)
    assert shop.states() == {"refused": 3}
    return shop


def test_they_are_listed(refused: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "refused", "--from", refused.url)
    assert (code, out.count("JobExists"), "refused because" in out) == (0, 3, True)
    code, out, _ = run(capsys, "refused", "--from", refused.url, "--json", "--limit", "1")
    reason = f"JobExists: job 'a' is already in topic '{TOPIC}'"
    assert (code, json.loads(out)) == (0, [{"number": 1, "topic": TOPIC, "id": "a", "error": reason}])
    code, out, _ = run(capsys, "refused", "another.topic", "--from", refused.url)
    assert (code, out) == (0, "no row was refused\n")
    assert json.loads(run(capsys, "refused", TOPIC, "--from", refused.url, "--json")[1])[2]["id"] == "c"


def test_they_are_relayed_again(refused: Shop, relay: Relay, queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.cancel(TOPIC, "b")
    code, out, _ = run(capsys, "retry", "2", "3", "99", "--from", refused.url)
    assert (code, out) == (0, "2 to be relayed again\n")
    assert refused.sql("SELECT error FROM streamdq_outbox WHERE state = 'waiting'") == [(None,), (None,)]
    relay.run(burst=True)
    assert finish(queue) == ["b"]
    assert refused.states() == {"refused": 2}, "the third has been refused again"
    code, out, _ = run(capsys, "retry", "--all", "--from", refused.url, "--json")
    assert (code, json.loads(out)) == (0, {"retried": 2})
    assert refused.states() == {"waiting": 2}
    assert run(capsys, "retry", "--all", "--from", refused.url)[:2] == (1, "nothing changed: no such row was refused\n")
    relay.run(burst=True)


def test_one_is_relayed_under_another_id(
    refused: Shop, relay: Relay, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "retry", "1", "--id", "a2", "--from", refused.url)[0] == 0
    relay.run(burst=True)
    assert finish(queue) == ["a2"]
    for words in (["1", "2", "--id", "x"], ["--all", "--id", "x"], ["2", "--id", "x\ny"]):
        assert run(capsys, "retry", *words, "--from", refused.url)[0] == 2
    assert refused.states() == {"refused": 2}


def test_they_are_dropped(refused: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    refused.order("waits", "x")
    code, out, _ = run(capsys, "drop", "1", "4", "--from", refused.url)
    assert (code, out) == (0, "1 dropped\n"), "a row that waits is none of them"
    assert run(capsys, "drop", "1", "--from", refused.url)[0] == 1
    code, out, _ = run(capsys, "drop", "--all", "--json", "--from", refused.url)
    assert (code, json.loads(out)) == (0, {"dropped": 2})
    assert refused.states() == {"waiting": 2}


def test_what_is_given_wrongly(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("retry", "drop"):
        for words in ([], ["1", "--all"], ["x"]):
            assert run(capsys, command, *words, "--from", shop.url)[0] == 2
        assert run(capsys, command, "1", "--from", shop.url)[0] == 1


def test_only_those_of_the_namespace(refused: Shop) -> None:
    other = RefusedRows(refused.url, "other")
    assert (other.refused(10), other.retry(None), other.drop([1, 2, 3])) == ([], 0, 0)
    other.close()
    assert refused.states() == {"refused": 3}


def test_all_of_many(refused: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.outbox.refused.BATCH", 2)
    found = RefusedRows(refused.url, "streamdq")
    assert found.retry(None) == 3
    assert refused.states() == {"waiting": 3}
    refused.sql("UPDATE streamdq_outbox SET state = 'refused', error = ''")
    assert found.drop(None) == 3
    found.close()
