"""The codecs that the settings name, so that every process of a deployment reads and writes alike without code."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import Settings, read_text
from ..errors import InvalidInput
from .bodies import Bodies
from .encrypt import Encrypt
from .protocol import Codec
from .zstd import Zstd


def bodies_of(namespace: str, settings: Settings, codec: Sequence[Codec] | None = None) -> Bodies:
    """The bodies of a namespace. ``codec`` None: those of ``STREAMDQ_CODEC``. Whatever is configured is read.

    Raises:
        InvalidInput: a setting can't be read.
        MissingExtra: a library that is needed for writing is not installed.
    """
    keys = _keys(settings)
    encrypt = Encrypt(*keys) if keys else None
    if codec is None:
        codec = [_named(name, encrypt) for name in settings.codec.replace(",", " ").split()]
    read = [encrypt] if encrypt else []
    return Bodies(namespace, settings.max_body_bytes, settings.max_decoded_bytes, codec, read)


def _named(name: str, encrypt: Encrypt | None) -> Codec:
    if name == "zstd":
        return Zstd()
    if name != "encrypt":
        raise InvalidInput(f"STREAMDQ_CODEC: {name[:40]!r} is neither zstd nor encrypt")
    if encrypt is None:
        raise InvalidInput("STREAMDQ_CODEC: encrypt needs a key in STREAMDQ_BODY_KEYS or STREAMDQ_BODY_KEYS_FILE")
    return encrypt


def _keys(settings: Settings) -> list[str]:
    text = settings.body_keys
    if settings.body_keys_file:
        try:
            text += "\n" + read_text(settings.body_keys_file)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise InvalidInput(f"STREAMDQ_BODY_KEYS_FILE: can't read {settings.body_keys_file}: {why}") from None
    return text.replace(",", " ").replace(";", " ").split()
