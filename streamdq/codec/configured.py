"""The codecs that the settings name, so that every process of a deployment reads and writes alike without code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import extensions
from ..config import Settings, read_text
from ..errors import InvalidInput
from .bodies import Bodies
from .encrypt import Encrypt
from .offload import Offload
from .protocol import Codec
from .trace import NAME as TRACE
from .trace import Trace
from .zstd import Zstd


def bodies_of(
    namespace: str, settings: Settings, codec: Sequence[Codec] | None = None, *, files: bool = True
) -> Bodies:
    """The bodies of a namespace. ``codec`` None: those of ``STREAMDQ_CODEC``. Whatever is configured is read. ``files``
    False: new bodies are put into no files.

    Raises:
        InvalidInput: a setting can't be read.
        MissingExtra: a library that is needed for writing is not installed.
    """
    known: dict[str, Codec] = {}
    if keys := _keys(settings):
        known["encrypt"] = Encrypt(*keys)
    if settings.offload:
        known["offload"] = Offload(settings.offload, settings.offload_over_bytes, settings.offload_timeout_s)
    if codec is None:
        codec = [_named(name, known, settings) for name in settings.codec.replace(",", " ").split()]
    if not files:
        codec = [one for one in codec if not isinstance(one, Offload)]
    return Bodies(namespace, settings.max_body_bytes, settings.max_decoded_bytes, codec, known.values())


_NEEDED = {
    "encrypt": "a key in STREAMDQ_BODY_KEYS or STREAMDQ_BODY_KEYS_FILE",
    "offload": "a URL in STREAMDQ_OFFLOAD",
}


def _named(name: str, known: Mapping[str, Codec], settings: Settings) -> Codec:
    if name == "zstd":
        return Zstd()
    if name == TRACE:
        return Trace()
    if name not in _NEEDED:
        return _of_package(name, settings)
    if name not in known:
        raise InvalidInput(f"STREAMDQ_CODEC: {name} needs {_NEEDED[name]}")
    return known[name]


def _of_package(name: str, settings: Settings) -> Codec:
    extension = extensions.find(extensions.CODECS, name)
    if extension is None:
        raise InvalidInput(
            f"STREAMDQ_CODEC: {name[:40]!r} is none of trace, zstd, encrypt and offload, nor a codec of an installed "
            "package"
        )
    make = extension.load()

    def made() -> Codec:
        codec: Codec = make(settings)
        if codec.name != name:
            raise extension.broken(f"its name is {codec.name!r}; bodies are stored with that")
        return codec

    return extension.calling(made)


def _keys(settings: Settings) -> list[str]:
    text = settings.body_keys
    if settings.body_keys_file:
        try:
            text += "\n" + read_text(settings.body_keys_file)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise InvalidInput(f"STREAMDQ_BODY_KEYS_FILE: can't read {settings.body_keys_file}: {why}") from None
    return text.replace(",", " ").replace(";", " ").split()
