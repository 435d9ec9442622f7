"""Compression by Zstandard. Needs the extra ``zstd``."""

from __future__ import annotations

import threading
from typing import Any

from ..errors import BodyDamaged, BodyUnreadable, InvalidInput, MissingExtra
from .protocol import Context

_LARGEST_WINDOW = 1 << 23  # what the format recommends every decoder to support


class Zstd:
    """Compresses bodies of more than ``over`` bytes, if that makes them smaller. ``level``: 1 is fast, 19 is small."""

    name = "zstd"
    tag = ""

    def __init__(self, level: int = 3, over: int = 256) -> None:
        _library()  # reports its absence here, not at the first body
        if isinstance(level, bool) or not isinstance(level, int) or not 1 <= level <= 22:
            raise InvalidInput(f"Zstd: level={level!r} is not between 1 and 22")
        self._level = level
        self._over = over
        self._own = threading.local()  # the library's objects must not be used by two threads at once

    def __reduce__(self) -> tuple[Any, ...]:
        """For the queue of handlers in other processes."""
        return Zstd, (self._level, self._over)

    def encode(self, data: bytes, context: Context) -> bytes | None:  # noqa: ARG002
        if len(data) <= self._over:
            return None
        compressor = getattr(self._own, "compressor", None)
        if compressor is None:
            compressor = self._own.compressor = _library().ZstdCompressor(level=self._level)
        small: bytes = compressor.compress(data)
        return small if len(small) < len(data) else None

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:  # noqa: ARG002
        zstandard = _library()
        try:
            size = zstandard.get_frame_parameters(data).content_size
            # The library allocates what the frame claims, so the claim is checked first. Our frames all have one.
            if size == zstandard.CONTENTSIZE_UNKNOWN:
                raise BodyDamaged("its compressed data does not tell its size")
            if size > context.most_bytes:
                raise BodyUnreadable(f"it has {size} bytes, more than STREAMDQ_MAX_DECODED_BYTES allows here")
            decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
            whole: bytes = decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise BodyDamaged("its compressed data is damaged") from error
        return whole


def _library() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "zstd") from None
    return zstandard
