"""TLS by uvicorn's own options."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's certificate, with those that vouch for it after it, and its key. ``ca_certs``: a caller must have a
    certificate as well, that one of these vouches for.
    """

    certfile: Path
    keyfile: Path | None = None
    keyfile_password: str | None = None
    ca_certs: Path | None = None

    def options(self) -> dict[str, Any]:
        """As uvicorn takes them."""
        found: dict[str, Any] = {
            "ssl_certfile": str(self.certfile),
            "ssl_keyfile": str(self.keyfile) if self.keyfile else None,
            "ssl_keyfile_password": self._password(),
        }
        if self.ca_certs:
            found |= {"ssl_ca_certs": str(self.ca_certs), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return found

    def read_again(self, config: uvicorn.Config) -> None:
        """What new connections are shown.

        Raises:
            InvalidInput: the files can't be read; what was shown stays.
        """
        try:
            assert config.ssl is not None
            config.ssl.load_cert_chain(self.certfile, self.keyfile, self._password())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"tls: can't read {self.certfile} with its key: {_why(error)}") from None

    def _password(self) -> str:
        """Without one OpenSSL would ask for it at the terminal, and wait."""
        return self.keyfile_password or ""


def loaded(config: uvicorn.Config) -> uvicorn.Config:
    """The configuration, with its certificate read.

    Raises:
        InvalidInput: that can't be.
    """
    try:
        config.load()
    except (OSError, ValueError) as error:
        if config.ssl_certfile is None:
            raise
        raise InvalidInput(f"tls: can't read {config.ssl_certfile} with its key: {_why(error)}") from None
    return config


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
