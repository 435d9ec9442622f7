"""A receiver of streamdq's callbacks: checks the signature, and does each job once.

    export WEBHOOK_SECRET=whsec_...     # while it is replaced: 'whsec_NEW... whsec_OLD...'
    python receiver.py                  # http://127.0.0.1:9000/hooks; put a proxy with TLS in front of it

Needs aiohttp and standardwebhooks, which `pip install 'streamdq[http]'` brings as well. The same in any other
language: the headers are those of the Standard Webhooks specification, which has libraries for most.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

MOST_BYTES = 256 * 1024
SECRETS: web.AppKey[list[str]] = web.AppKey("secrets", list)
DATABASE: web.AppKey[sqlite3.Connection] = web.AppKey("database", sqlite3.Connection)


async def receive(request: web.Request) -> web.Response:
    """204: done, now or before. 401: not from the sender. Anything else: the sender will call again."""
    body = await request.read()
    if not any(genuine(secret, body, dict(request.headers)) for secret in request.app[SECRETS]):
        return web.Response(status=401)
    # The id and the job's effect are written in one transaction: a repeated call finds both or neither.
    with request.app[DATABASE] as database:
        first = database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (request.headers["webhook-id"],)).rowcount
        if first:
            database.execute("INSERT INTO paid VALUES (?)", (body.decode(),))
    return web.Response(status=204)


def genuine(secret: str, body: bytes, headers: dict[str, str]) -> bool:
    """Whether it is signed with the secret and at most five minutes old. Pass the body as received, not re-encoded."""
    try:
        Webhook(secret).verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def application(secrets: list[str], database: Path | str) -> web.Application:
    app = web.Application(client_max_size=MOST_BYTES)
    app[SECRETS] = secrets
    app[DATABASE] = sqlite3.connect(database)
    app[DATABASE].executescript(
        "CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY); CREATE TABLE IF NOT EXISTS paid (order_json TEXT)"
    )
    app.router.add_post("/hooks", receive)
    return app


if __name__ == "__main__":
    web.run_app(application(os.environ["WEBHOOK_SECRET"].split(), "received.sqlite"), host="127.0.0.1", port=9000)
