"""Encoded bodies wait in the outbox as they will be in Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from streamdq import Queue, outbox
from streamdq.codec import Encrypt
from streamdq.codec.encrypt import new_key
from streamdq.outbox import producer
from streamdq.outbox.relay import Relay
from tests.outbox.orders import TOPIC, Shop
from tests.servers import Server

SECRET = "4111-1111-1111-1111"
KEY = new_key("k1")


@pytest.fixture
def encrypting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The application's environment, which it reads once."""
    monkeypatch.setenv("STREAMDQ_CODEC", "encrypt")
    monkeypatch.setenv("STREAMDQ_BODY_KEYS", KEY)
    producer.forget_settings()
    yield
    monkeypatch.undo()
    producer.forget_settings()


@pytest.mark.usefixtures("encrypting", "queue")
def test_an_encrypted_row_is_relayed(shop: Shop, relay: Relay, server: Server) -> None:
    with shop.engine.begin() as db:
        for n in range(30):
            outbox.enqueue(db, TOPIC, {"card": SECRET, "n": n}, id=f"o{n}", version=3)
    with shop.engine.connect() as db:
        assert SECRET not in str(db.execute(text("SELECT * FROM streamdq_outbox")).all())
    relay.run(burst=True)
    with Queue(server.url, codec=[Encrypt(KEY)]) as own:
        for n in range(30):
            job = own.get(TOPIC, f"o{n}")
            assert job is not None
            assert (job.body, job.version) == ({"card": SECRET, "n": n}, 3)
            assert own.cancel(TOPIC, f"o{n}")
