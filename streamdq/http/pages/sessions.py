"""Sessions of the web page. A cookie holds a random name; Redis has the token that it stands for. A session ends when
the user signs out, after twelve hours, or with its token. All servers of the namespace share the sessions.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

from ...store import namespace
from ..auth import Identity, hash_token
from ..backend import Backend

LENGTH_S = 12 * 3600
MOST = 100
"""Sessions of one token: several people may share it."""


async def _key(backend: Backend, cookie: str) -> str:
    """The session's key, made from the cookie's hash, so that nobody can sign in with what they read in Redis."""
    digest = sha256(cookie.encode("utf-8", "replace")).hexdigest()
    return (await backend.store()).session.keys.session(digest)


async def begin(backend: Backend, token: str) -> str:
    """Begins a session and returns its cookie."""
    cookie = secrets.token_urlsafe(32)
    key = await _key(backend, cookie)
    session = (await backend.store()).session
    await backend.do(namespace.begin_session(session, key, hash_token(token), LENGTH_S, MOST))
    return cookie


async def holder(backend: Backend, cookie: str) -> Identity | None:
    """Whose session it is; None if there is none, or it has ended."""
    if not cookie:
        return None
    key = await _key(backend, cookie)
    digest = await backend.do(namespace.session_token((await backend.store()).session, key))
    return None if digest is None else backend.tokens.holder(digest)


async def end(backend: Backend, cookie: str) -> bool:
    """Ends the session; from now on no server accepts it. Returns whether there was one."""
    if not cookie:
        return False
    key = await _key(backend, cookie)
    return await backend.do(namespace.end_session((await backend.store()).session, key))
