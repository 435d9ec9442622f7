"""The secrets that claims are signed with: the current one, and the previous one until it is dropped.

They are in Redis, the same for all servers of a namespace. A server reads them again every ten seconds; from then on it
signs with a new secret, and no longer accepts one that was dropped.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..link.session import Op
from ..store import namespace
from ..store.redis_store import RedisStore
from .signing import seal, unseal

KNOWN_FOR_S = 10.0


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets as stored in Redis: ``current``, or ``current since_ms previous``."""

    text: str

    @property
    def known(self) -> list[bytes]:
        """The current one first."""
        current, _, rest = self.text.partition(" ")
        return [bytes.fromhex(word) for word in (current, rest.partition(" ")[2]) if word]

    @property
    def since_ms(self) -> int | None:
        """When the previous secret was replaced; None if there is none."""
        since = self.text.partition(" ")[2].partition(" ")[0]
        return int(since) if since else None


def new_secret() -> str:
    return secrets.token_bytes(32).hex()


def kept(store: RedisStore, mine: str) -> Op[Secrets]:
    """The stored secrets. If there are none, as Redis may have lost them, stores ``mine``."""
    return Secrets((yield from namespace.keep_secret(store.session, mine)))


class Signing:
    """Seals and unseals for one purpose, in one server."""

    def __init__(
        self, purpose: str, store: Callable[[], Awaitable[RedisStore]], do: Callable[[Op[Any]], Awaitable[Any]]
    ) -> None:
        self._purpose = purpose
        self._store = store
        self._do = do
        self._secrets: Secrets | None = None
        self._read_at = 0.0

    async def seal(self, value: Any) -> str:
        return seal((await self.secrets()).known[0], self._purpose, value)

    async def unseal(self, text: str) -> Any | None:
        """The value; None if no server of the namespace sealed it, or its secret was dropped."""
        for renew in (False, True):  # another server may have created a new secret
            for secret in (await self.secrets(renew)).known:
                value = unseal(secret, self._purpose, text)
                if value is not None:
                    return value
        return None

    async def secrets(self, renew: bool = False) -> Secrets:
        """The secrets; the first caller creates them."""
        now = time.monotonic()
        if self._secrets is None or renew or now - self._read_at > KNOWN_FOR_S:
            mine = self._secrets.text if self._secrets else new_secret()
            self._secrets = await self._do(kept(await self._store(), mine))
            self._read_at = now
        return self._secrets
