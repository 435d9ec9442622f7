"""The login to Redis: its password is read anew for each connection, so it may change while all runs."""

from pathlib import Path

from redis import CredentialProvider


class Mounted(CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        return "streamdq", Path("/run/secrets/redis").read_text().strip()


provider = Mounted()
