"""Sessions of the web page. A cookie holds a random name, and Redis has the token that it stands for. A session ends by
signing out, after twelve hours, or with its token. All servers of the namespace share the sessions.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

from ...store import namespace
from ..auth import Identity, hash_token
from ..backend import Backend

LENGTH_S = 12 * 3600


async def _key(backend: Backend, cookie: str) -> str:
    """By its hash: whoever reads Redis can't sign in with what is there."""
    digest = sha256(cookie.encode("utf-8", "replace")).hexdigest()
    return (await backend.store()).session.keys.session(digest)


async def begin(backend: Backend, token: str) -> str:
    """A new session's cookie."""
    cookie = secrets.token_urlsafe(32)
    key = await _key(backend, cookie)
    session = (await backend.store()).session
    await backend.do(namespace.begin_session(session, key, hash_token(token), LENGTH_S))
    return cookie


async def holder(backend: Backend, cookie: str) -> Identity | None:
    """Whose session it is; None when there is none, or no more."""
    if not cookie:
        return None
    key = await _key(backend, cookie)
    digest = await backend.do(namespace.session_token((await backend.store()).session, key))
    return None if digest is None else backend.tokens.holder(digest)


async def end(backend: Backend, cookie: str) -> None:
    """After this no server accepts it."""
    if cookie:
        key = await _key(backend, cookie)
        await backend.do(namespace.end_session((await backend.store()).session, key))
