"""Encoded bodies go into the archive and come back as they are."""

from __future__ import annotations

import pytest

from streamdq import Queue
from streamdq.archive import Archive
from streamdq.codec import Encrypt
from streamdq.codec.encrypt import new_key
from streamdq.errors import BodyUnreadable
from tests.archive.letters import rows, take
from tests.servers import Server

SECRET = "4111-1111-1111-1111"


def test_an_encrypted_letter_comes_back_whole(server: Server, queue: Queue, database: str) -> None:
    encrypt = Encrypt(new_key("k1"))
    with Queue(server.url, codec=[encrypt]) as own, Archive(database) as archive:
        for n in range(30):  # enough random bytes for any of them to be special to somebody
            own.enqueue("t", {"card": SECRET, "n": n}, id=f"j{n}", version=2)
        take(own, 30)
        before = {job.id: job.raw_body for job in own.dead("t")}
        assert archive.store(queue).archived == 30
        letter = rows(archive)[0].dead_letter
        assert SECRET not in repr(letter)
        with pytest.raises(BodyUnreadable, match="'k1', which is not configured here"):
            archive.body_json(letter)
        with Archive(database, codec=[encrypt]) as reading:
            assert SECRET.encode() in reading.body_json(letter)
        assert archive.kick(queue, "t").kicked == 30
        for id, raw in before.items():
            job = own.get("t", id)
            assert job is not None
            assert (job.raw_body, job.version, job.body["card"]) == (raw, 2, SECRET)
