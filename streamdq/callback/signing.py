"""Signs callbacks according to the Standard Webhooks specification, https://www.standardwebhooks.com."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from standardwebhooks import Webhook
from yarl import URL

from ..errors import InvalidInput

_PREFIX = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64  # of a secret, by the specification


def webhook_id(id: str) -> str:
    """The job's id for the header: percent-encoded except letters, digits, ``-``, ``_`` and ``~``.

    The specification forbids dots, which separate the signed parts; other bytes are not allowed in a header.
    """
    return quote(id, safe="").replace(".", "%2E")


class Signer:
    """``secrets``: by host (``shop.example``), host and port, or URL prefix (``https://shop.example/hooks/``), one or
    more each: during a rotation, the new and the old one. The longest match for a URL counts.

    Raises:
        InvalidInput: a key is neither, or a secret not one after the specification. The text holds none.
    """

    def __init__(self, secrets: Mapping[str, Sequence[str]]) -> None:
        self._hosts: dict[tuple[str, int | None], list[Webhook]] = {}
        self._prefixes: list[tuple[URL, list[Webhook]]] = []
        for where, own in secrets.items():
            webhooks = [_webhook(where, secret) for secret in own]
            if not webhooks:
                raise _refused(where, "there is no secret; remove the line, or add one")
            if "://" in where:
                self._prefixes.append((_prefix(where, where), webhooks))
            else:
                host = _prefix(f"https://{where}", where)
                if host.path != "/" or host.raw_host is None:
                    raise _refused(where, "neither a host nor a URL; begin a URL with https://")
                self._hosts[host.raw_host, host.explicit_port] = webhooks
        self._prefixes.sort(key=lambda prefix: -len(prefix[0].raw_path))

    def headers(self, url: URL, id: str, body: str, now_s: float) -> dict[str, str]:
        """``webhook-id``, ``webhook-timestamp`` and, if there is a secret for the URL, ``webhook-signature``."""
        sent = datetime.fromtimestamp(int(now_s), UTC)
        message = webhook_id(id)
        headers = {"webhook-id": message, "webhook-timestamp": str(int(now_s))}
        if webhooks := self._find(url):
            headers["webhook-signature"] = " ".join(webhook.sign(message, sent, body) for webhook in webhooks)
        return headers

    def _find(self, url: URL) -> list[Webhook]:
        for prefix, webhooks in self._prefixes:
            if _begins(url, prefix):
                return webhooks
        assert url.raw_host is not None
        own = self._hosts.get((url.raw_host, url.port))
        return own or self._hosts.get((url.raw_host, None), [])


def _begins(url: URL, prefix: URL) -> bool:
    """Whether the URL is under the prefix: ``/hooks`` covers ``/hooks`` and ``/hooks/a``, not ``/hooks-of-another``."""
    if (url.scheme, url.raw_host, url.port) != (prefix.scheme, prefix.raw_host, prefix.port):
        return False
    path = prefix.raw_path
    return url.raw_path == path or url.raw_path.startswith(path if path.endswith("/") else f"{path}/")


def _refused(where: str, why: str) -> InvalidInput:
    """Named as the setting is: a text in quotes after the word "secrets" would be hidden as one of them."""
    return InvalidInput(f"callback settings: secrets.{where.rpartition('@')[2]}: {why}")


def _prefix(text: str, where: str) -> URL:
    try:
        url = URL(text)
        fine = url.scheme in ("http", "https") and bool(url.raw_host) and not url.query_string and not url.fragment
    except ValueError:
        fine = False
    if not fine or "@" in text:
        raise _refused(where, "not a host, a host:port, or an http(s) URL without user, query and fragment")
    return url


def _webhook(where: str, secret: str) -> Webhook:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise _refused(where, f"one secret is not {_PREFIX} and {_LEAST_BYTES} to {_MOST_BYTES} random bytes in base64")
    return Webhook(key)
