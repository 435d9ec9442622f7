"""What the tests of the web page look at it with."""

from __future__ import annotations

import re
from typing import Any

import httpx

from streamdq import Bury, Worker
from streamdq.config import Settings
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from tests.http.harness import NAMESPACE, Api
from tests.servers import Server

EVIL = "<script>alert('x')</script>"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://localhost"}
PRODUCER, VIEWER, ADMIN = (new_token(role.value, [role]) for role in (Role.PRODUCER, Role.VIEWER, Role.ADMIN))
TOKENS = Tokens.parse(";".join(line for _, line in (PRODUCER, VIEWER, ADMIN)))


async def work(server: Server, *, error: str = "", topic: str = "t") -> None:
    """Runs all that is due; fails permanently with ``error``, where there is one."""
    worker = Worker(server.url, NAMESPACE, settings=Settings(url="memory://unused"))

    @worker.handler(topic)
    async def handler(_: object) -> None:
        if error:
            raise Bury(error)

    await worker.serve(burst=True)


async def see(site: Api, path: str, status: int = 200) -> str:
    """The page as text; with all that keeps what it shows from becoming more than text."""
    response = await site.client.get(path)
    assert response.status_code == status, response.text
    check_headers(response)
    return response.text


def check_headers(response: httpx.Response) -> None:
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-frame-options"] == "DENY"
    if response.headers.get("content-type", "").startswith("text/html"):
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", response.text)


async def post(site: Api, path: str, headers: dict[str, str] | None = None, **form: Any) -> httpx.Response:
    return await site.client.post(path, data=form, headers=headers if headers is not None else FORM)
