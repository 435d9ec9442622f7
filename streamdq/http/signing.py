"""Signs claims, so that the server can verify them later without storing them.

The secret is in Redis, so a claim stays valid after a restart, and every server of the namespace accepts it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import time
from hashlib import sha256
from typing import Any

from ..job.job import Job, JobState
from ..operations.attempts.claimed import ClaimedJob
from ..store.redis_store import RedisStore
from ..times.clock import wall_s

_VERSION = "v1"
_MAC_BYTES = 16


def seal(secret: bytes, purpose: str, value: Any) -> str:
    """The value as a text that only a holder of the secret can create; ``purpose`` separates one use from another."""
    payload = json.dumps(value, separators=(",", ":")).encode()
    return f"{_VERSION}.{_base64(payload)}.{_base64(_mac(secret, purpose, payload))}"


def unseal(secret: bytes, purpose: str, text: str) -> Any | None:
    """The value, or None if the text was not made by ``seal`` for this purpose, or was changed."""
    version, _, rest = text.partition(".")
    body, _, mac = rest.partition(".")
    if version != _VERSION or not text.isascii():
        return None
    try:
        payload, given = _bytes(body), _bytes(mac)
    except (ValueError, binascii.Error):
        return None
    if not hmac.compare_digest(_mac(secret, purpose, payload), given):
        return None
    return json.loads(payload)


def _mac(secret: bytes, purpose: str, payload: bytes) -> bytes:
    return hmac.digest(secret, purpose.encode() + b"\0" + payload, sha256)[:_MAC_BYTES]


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def pack(held: ClaimedJob, consumer: str) -> list[Any]:
    """The values that ``unpack`` needs to end the claim on any server: the entry, which is the fence, and the data for
    the history.
    """
    job = held.job
    return [
        job.topic, held.shard.shard, held.group, job.id, held.main.decode(), held.entry.decode(), held.due_ms,
        held.crashes, held.started_ms, held.ttr_ms, job.attempt, job.step, job.created_ms, len(job.raw_body),
        job.retry, consumer, held.generation, job.key,
    ]  # fmt: skip


def unpack(store: RedisStore, values: list[Any]) -> ClaimedJob:
    """The packed claim. In place of its body it has one of the same length, for the history."""
    (topic, shard, group, id, main, entry, due_ms, crashes, started_ms, ttr_ms, attempt, step, created_ms, body_bytes,
     retry, consumer, *rest) = values  # fmt: skip
    job = Job(
        topic, id, bytes(body_bytes), due_ms, created_ms, ttr_ms=ttr_ms, retry=retry, state=JobState.RUNNING,
        attempt=attempt, step=step, key=rest[1] if len(rest) > 1 else None,
    )  # fmt: skip
    return ClaimedJob(
        store.session.keys.shard(topic, shard), group, job, main.encode(), entry.encode(), due_ms,
        generation=rest[0] if rest else "0",  # claims from an older server have none
        ttr_ms=ttr_ms,
        # By this host's clock: it only affects a metric.
        deadline=time.monotonic() + ttr_ms / 1000 - max(0.0, wall_s() - started_ms / 1000),
        crashes=crashes, started_ms=started_ms, consumer=consumer, receipt=True,
    )  # fmt: skip
