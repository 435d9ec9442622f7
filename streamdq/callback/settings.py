"""Settings of the callback worker: environment variables ``STREAMDQ_CALLBACK_*``, and a file that overrides them.

Secrets have no option on the command line, where every process of the machine can read them.
"""

from __future__ import annotations

import json
import ssl
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, FilePath, SecretStr, ValidationError, field_validator

from ..config import FromEnvironment, read_text
from ..errors import InvalidInput
from ..times.durations import MAX_DELAY_MS


class CallbackSettings(FromEnvironment):
    """Which URLs may be called, the time-outs, and how callbacks are signed. In the environment, ``allow`` and ``deny``
    are words separated by spaces or commas, and ``secrets`` is JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    env_prefix = "STREAMDQ_CALLBACK_"

    allow: tuple[str, ...] = Field(
        default=(), description="Hosts and networks to call besides public ones, also over http."
    )
    deny: tuple[str, ...] = Field(default=(), description="Networks that are never connected to.")
    secrets: dict[str, Annotated[list[SecretStr], Field(min_length=1)]] = Field(
        default_factory=dict, description="By host or URL prefix: whsec_…, the new one and, for a while, the old one."
    )
    timeout_s: float = Field(default=15.0, gt=0, description="For one call; less where its TTR ends sooner.")
    per_host: int = Field(default=50, ge=1, le=10_000, description="Connections to one receiver, in each process.")
    retry_after_s: float = Field(
        default=86_400, ge=0, le=MAX_DELAY_MS / 1000, description="The longest Retry-After that is kept to."
    )
    ca_file: FilePath | None = Field(default=None, description="Certificates to trust instead of the system's.")

    @field_validator("allow", "deny", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value

    @field_validator("secrets", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('this is no JSON, such as {"shop.example": ["whsec_…"]}') from None

    @field_validator("ca_file")
    @classmethod
    def _holds_certificates(cls, file: Path | None) -> Path | None:
        try:
            ssl.create_default_context(cafile=file)
        except OSError:
            raise ValueError(f"{file} holds no certificates that can be read") from None
        return file

    def plain_secrets(self) -> dict[str, list[str]]:
        return {where: [secret.get_secret_value() for secret in own] for where, own in self.secrets.items()}

    @classmethod
    def load(cls, file: Path | None = None, **given: Any) -> CallbackSettings:
        """``given`` comes first, then the TOML ``file``, then the environment.

        Raises:
            InvalidInput: one of them can't be read, or contains an unknown setting. The text contains no secret.
        """
        try:
            return cls(**{**({} if file is None else _read(file)), **given})
        except ValidationError as error:
            first = error.errors(include_input=False, include_context=False)[0]
            text = first["msg"].removeprefix("Value error, ")
            raise InvalidInput(f"callback settings: {'.'.join(map(str, first['loc']))}: {text}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(file))
    except OSError as error:
        raise InvalidInput(f"callback settings: {file} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise InvalidInput(f"callback settings: {file} is not TOML") from None
