"""TLS by uvicorn's own options."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InvalidInput

StrPath = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's certificate, followed by its chain, and its key. ``ca_certs``: callers need a certificate, too, signed
    by one of these authorities.
    """

    certfile: Path
    keyfile: Path | None = None
    keyfile_password: str | None = None
    ca_certs: Path | None = None

    def options(self) -> dict[str, Any]:
        """The options for uvicorn."""
        found: dict[str, Any] = {
            "ssl_certfile": str(self.certfile),
            "ssl_keyfile": str(self.keyfile) if self.keyfile else None,
            "ssl_keyfile_password": self._password(),
        }
        if self.ca_certs:
            found |= {"ssl_ca_certs": str(self.ca_certs), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return found

    def read_again(self, context: ssl.SSLContext) -> None:
        """Reads the certificate again, for new connections.

        Raises:
            InvalidInput: the files can't be read; the old certificate stays in use.
        """
        try:
            context.load_cert_chain(self.certfile, self.keyfile, self._password())
        except (OSError, ValueError) as error:
            raise _refused(self.certfile, self.keyfile, error) from None

    def _password(self) -> str:
        """The key's password. Without one, OpenSSL would ask for it on the terminal and wait."""
        return self.keyfile_password or ""


def loaded(config: uvicorn.Config) -> uvicorn.Config:
    """The configuration, with its certificate read.

    Raises:
        InvalidInput: the files can't be read.
    """
    try:
        config.load()
    except (OSError, ValueError) as error:
        if config.ssl_certfile is None:
            raise
        raise _refused(config.ssl_certfile, config.ssl_keyfile, error, config.ssl_ca_certs) from None
    return config


def _refused(
    certfile: StrPath, keyfile: StrPath | None, error: OSError | ValueError, ca_certs: StrPath | None = None
) -> InvalidInput:
    """The error with the file and the cause, which OpenSSL does not name."""
    for path in (path for path in (certfile, keyfile, ca_certs) if path is not None):
        try:
            Path(path).open("rb").close()
        except OSError as unreadable:
            return InvalidInput(f"tls: can't read {path}: {unreadable.strerror}")
    why = getattr(error, "strerror", None) or str(error)
    if keyfile is None:
        return InvalidInput(
            f"tls: {certfile} is no certificate with its key in one file ({why}); is --ssl-keyfile missing?"
        )
    also = f", or {ca_certs} holds none" if ca_certs else ""
    return InvalidInput(
        f"tls: {certfile} and {keyfile} are no certificate and its key{also} ({why}); the password of a key is "
        "$STREAMDQ_HTTP_SSL_KEYFILE_PASSWORD"
    )
