"""Compression of small bodies, by Zstandard with a dictionary: what bodies have in common, such as the names of fields,
is in the dictionary and not in each body. Needs the extra ``zstd``.
"""

from __future__ import annotations

import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import BodyUnreadable, InvalidInput
from .envelope import Envelope, Layer
from .protocol import Context
from .zstd import LARGEST_WINDOW, check_level, decompressed, library

DICTIONARY_BYTES = 8 * 1024
"""A dictionary's size if none is given. A larger one helps where bodies are long and of many kinds."""

LEAST_SAMPLES = 100
_MAGIC = b"\x28\xb5\x2f\xfd"  # begins every frame, so it is not stored
_TRAINED = b"\x37\xa4\x30\xec"
_LEAST_BYTES, _MOST_BYTES = 256, 1 << 20
_LEAST_GAIN = 24  # bytes: what the first line of the stored body takes, and some more, so that it is worth it


class Dictionary:
    """Compresses bodies with the first of the dictionaries, if that makes them smaller, and decompresses those of all
    of them. A dictionary is a file, or its content; ``streamdq bodies dictionary`` and ``Dictionary.train`` make one.
    ``level``: 1 is fast, 19 is small.

    A body can't be read without its dictionary. So keep each one as long as jobs have it.

    Raises:
        InvalidInput: a dictionary can't be read, or is none.
        MissingExtra: the extra ``zstd`` is not installed.
    """

    name = "dict"

    def __init__(self, *dictionaries: str | Path | bytes, level: int = 3) -> None:
        if not dictionaries:
            raise InvalidInput("Dictionary: pass at least one, such as `streamdq bodies dictionary` makes")
        self._level = check_level("Dictionary", level)
        found = [_content(each) for each in dictionaries]
        self.tag = _tag(found[0])
        self._known = {_tag(content): _Threads(content, self._level) for content in found}

    def __repr__(self) -> str:
        return f"Dictionary({', '.join(self._known)})"

    @staticmethod
    def train(bodies: Iterable[bytes], size: int = DICTIONARY_BYTES) -> bytes:
        """A dictionary of at most so many bytes, made of samples: the JSON of some hundred or thousand bodies, of all
        kinds that there are. It contains pieces of them in the clear.

        Raises:
            InvalidInput: there are too few samples, or they have nothing in common.
        """
        if not _LEAST_BYTES <= size <= _MOST_BYTES:
            raise InvalidInput(f"Dictionary: size={size} is not between {_LEAST_BYTES} and {_MOST_BYTES:,} bytes")
        samples = list(bodies)
        if len(samples) < LEAST_SAMPLES:
            raise InvalidInput(f"Dictionary: {len(samples)} samples; at least {LEAST_SAMPLES} are needed")
        zstandard = library()
        try:
            trained: bytes = zstandard.train_dictionary(size, samples).as_bytes()
        except zstandard.ZstdError as error:
            raise InvalidInput(f"Dictionary: no dictionary can be made of these samples: {error}") from None
        return trained

    def encode(self, data: bytes, context: Context) -> bytes | None:  # noqa: ARG002
        return self._encoded(data)

    def _encoded(self, data: bytes) -> bytes | None:
        small: bytes = self._known[self.tag].compressor.compress(data)[len(_MAGIC) :]
        return small if len(small) + _LEAST_GAIN < len(data) else None

    def tried(self, bodies: Sequence[bytes]) -> tuple[float, float]:
        """The mean of their bytes, and of those that are stored of them."""
        layer = Layer(self.name, self.tag)
        stored = [
            body if (small := self._encoded(body)) is None else Envelope(1, (layer,), small).sealed() for body in bodies
        ]
        return sum(map(len, bodies)) / len(bodies), sum(map(len, stored)) / len(bodies)

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:
        known = self._known.get(tag)
        if known is None:
            raise no_dictionary(tag)
        return decompressed(_MAGIC + data, context, known.decompressor)


class _Threads:
    """One dictionary, and what each thread needs for it: the library's objects must not be used by two at once."""

    def __init__(self, content: bytes, level: int) -> None:
        zstandard = library()
        self._dictionary = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_FULLDICT)
        try:
            self._dictionary.precompute_compress(level=level)
        except zstandard.ZstdError:
            raise InvalidInput("Dictionary: one of them is damaged") from None
        self._parameters = zstandard.ZstdCompressionParameters.from_level(
            level,
            write_content_size=True,
            write_dict_id=False,  # the envelope tells which dictionary
        )
        self._own = threading.local()

    @property
    def compressor(self) -> Any:
        made = getattr(self._own, "compressor", None)
        if made is None:
            made = self._own.compressor = library().ZstdCompressor(
                dict_data=self._dictionary, compression_params=self._parameters
            )
        return made

    @property
    def decompressor(self) -> Any:
        made = getattr(self._own, "decompressor", None)
        if made is None:
            made = self._own.decompressor = library().ZstdDecompressor(
                dict_data=self._dictionary, max_window_size=LARGEST_WINDOW
            )
        return made


def no_dictionary(tag: str) -> BodyUnreadable:
    return BodyUnreadable(
        f"it is compressed with the dictionary {tag!r}, which is not configured here; see STREAMDQ_BODY_DICTIONARIES"
    )


def _tag(content: bytes) -> str:
    """Which dictionary it is, in six letters."""
    return urlsafe_b64encode(sha256(content).digest())[:6].decode()


def _content(dictionary: str | Path | bytes) -> bytes:
    if isinstance(dictionary, bytes):
        content, where = dictionary, "the one passed as bytes"
    elif isinstance(dictionary, str | Path):
        where = str(dictionary)
        try:
            content = Path(dictionary).expanduser().read_bytes()
        except OSError as error:
            raise InvalidInput(f"Dictionary: can't read {where}: {error.strerror}") from None
    else:
        raise InvalidInput(f"Dictionary: {type(dictionary).__name__} is neither a file nor bytes")
    if not content.startswith(_TRAINED) or len(content) > _MOST_BYTES:
        raise InvalidInput(f"Dictionary: {where} is no dictionary such as `streamdq bodies dictionary` makes")
    return content
