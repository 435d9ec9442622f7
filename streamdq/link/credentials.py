"""User names and passwords that change: a credential provider of redis-py is asked for them, again and again.

A connection that was opened with them is replaced after some minutes, between two calls, and at once when the provider
says that it has new ones. So each connection logs in again before its token runs out or somebody revokes its password.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from redis.credentials import CredentialProvider as CredentialProvider
from redis.credentials import StreamingCredentialProvider

from ..errors import InvalidInput
from ..process.logs import hide_credentials, log, what
from .failures import ProviderFailed

_RENEW_S = 180.0
"""How long a connection is used. The libraries of Azure and Google give out tokens that are valid for longer."""
InThread = Callable[..., Awaitable[Any]]


class Credentials:
    """What one provider gives, for all connections of this process."""

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider
        self._last: Any = None
        self._is_failing = False
        self.changes = 0
        """How often the provider has said that there are new ones."""
        if isinstance(provider, StreamingCredentialProvider):
            provider.on_next(self._changed)
            provider.on_error(self._failed)

    def _changed(self, _token: Any) -> None:
        self.changes += 1

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("credential provider failed; the last credentials are used", error=what(error))
        self._is_failing = True

    def get(self) -> Any:
        """Asks the provider. While it fails, the last ones may still be valid.

        Raises:
            ProviderFailed: it fails, and has never given any.
        """
        try:
            found = _login(self._provider.get_credentials())
            if self._last is not None and self._last[-1] and not found[-1]:
                raise ValueError("get_credentials returned an empty password")
            self._last = found
        except Exception as error:
            if self._last is None:
                raise ProviderFailed(f"the credential provider failed: {_text_of(error)}") from error
            self._failed(error)
        else:
            self._is_failing = False
        return self._last


def _login(given: Any) -> tuple[str | bytes, ...]:
    """The user and password, or the password alone. redis-py would send anything else, and with None log in as nobody,
    which Redis takes for its user ``default``.

    Raises:
        TypeError: it is neither. Its text has no secret.
    """
    if isinstance(given, tuple | list) and 1 <= len(given) <= 2 and all(isinstance(one, str | bytes) for one in given):
        return tuple(given)
    raise TypeError("get_credentials must return (user, password) or (password,), as text")


class Login(CredentialProvider):
    """That of one connection. ``in_thread``: calls a function that blocks, where the event loop must not wait for it;
    a provider may ask a server.
    """

    def __init__(self, credentials: Credentials, in_thread: InThread) -> None:
        self._credentials = credentials
        self._in_thread = in_thread
        self._changes = 0
        self._until = float("inf")

    def get_credentials(self) -> Any:
        self._begin()
        return self._credentials.get()

    async def get_credentials_async(self) -> Any:
        self._begin()
        return await self._in_thread(self._credentials.get)

    def _begin(self) -> None:
        self._changes = self._credentials.changes
        self._until = time.monotonic() + _RENEW_S * random.uniform(0.75, 1)  # noqa: S311 - no secret

    @property
    def is_old(self) -> bool:
        return self._changes != self._credentials.changes or time.monotonic() >= self._until


# By the provider's identity, as it may not be hashable; its Credentials keep it for as long as they are used.
_known: WeakValueDictionary[int, Credentials] = WeakValueDictionary()


def credentials_of(given: Any) -> Credentials | None:
    """``given``: a provider, or where it is, as MODULE:OBJECT; None if empty. All links share those of one provider,
    which tells only one listener of new ones.

    Raises:
        InvalidInput: there is no provider there.
    """
    if not given:
        return None
    provider = _imported(given) if isinstance(given, str) else _checked(given, type(given).__name__)
    found = _known.get(id(provider))
    if found is None:
        found = _known.setdefault(id(provider), Credentials(provider))
    return found


@cache
def _imported(target: str) -> CredentialProvider:
    """The same object each time, as it may keep tokens. The working folder is searched last."""
    module, _, name = target.partition(":")
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, CredentialProvider) and callable(found):
            found = found()
    except Exception as error:
        why = f"{target!r} can't be used: {_text_of(error)}; write MODULE:OBJECT"
        raise InvalidInput(f"credential_provider: {why}") from error
    finally:
        sys.path.remove(folder)
    return _checked(found, target)


def _checked(found: Any, name: str) -> CredentialProvider:
    if not isinstance(found, CredentialProvider):
        raise InvalidInput(f"credential_provider: {name} is not a redis.CredentialProvider")
    return found


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {hide_credentials(str(error))}"
