"""What comes before the first operation: a link, its session, and whether both will do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..codec.configured import bodies_of
from ..codec.protocol import Codec
from ..config import Settings
from ..errors import InvalidInput
from ..keys import plain
from ..times.clock import RedisClock
from .connection import AsyncLink
from .credentials import CredentialProvider
from .failures import LinkError
from .node import ConnectionLimits
from .session import Session

_NAMESPACE = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def check_namespace(namespace: str) -> str:
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidInput(f"namespace: {namespace!r} is not valid; use 1 to 64 of A-Z a-z 0-9 . _ : -")
    return plain(namespace)


def with_provider(settings: Settings | None, credential_provider: CredentialProvider | None) -> Settings:
    """The settings, with this provider if it is given."""
    settings = settings or Settings()
    if credential_provider is None:
        return settings
    return settings.model_copy(update={"credential_provider": credential_provider})


def open_session(
    url: str | None,
    namespace: str | None,
    settings: Settings | None,
    clock: RedisClock | None,
    link: type[Any],
    codec: Sequence[Codec] | None = None,
) -> tuple[Any, Session]:
    """A Link or AsyncLink, and what operations need to know. ``url`` None: ``$STREAMDQ_URL``, else the embedded
    server; ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else ``streamdq``; ``codec`` None: ``$STREAMDQ_CODEC``.
    """
    settings = settings or Settings()
    namespace = check_namespace(settings.namespace if namespace is None else namespace)
    bodies = bodies_of(namespace, settings, codec)
    limits = ConnectionLimits(settings.max_connections, settings.max_blocked_reads)
    opened = link(settings.url if url is None else url, settings.call_timeout_s, limits, settings.credential_provider)
    session = Session(settings, namespace, clock or RedisClock(), opened.target, bodies)
    session.use(opened)
    return opened, session


async def may_wait(link: AsyncLink, session: Session) -> None:
    """Checks that this user may wait for jobs and wakeups on a Cluster; elsewhere that needs no right of its own.

    Raises:
        AuthenticationFailed: the user may not.
        ServerUnavailable
    """
    if link.is_cluster:
        try:
            await link.check_looks()
        except LinkError as error:
            raise session.unavailable(error) from error
