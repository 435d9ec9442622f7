"""The stored form of a body that is not plain JSON: a line that tells how it was made, and the data.

    0xff VERSION ;NAME[:TAG] ;NAME[:TAG] … newline DATA

The codecs stand in the order in which they were applied. 0xff begins no JSON, and is no UTF-8. A body of version 1
without codecs has no such line: it is stored as its JSON.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import NamedTuple

from ..errors import BodyDamaged, InvalidInput
from ..job.job import ENCODED, MAX_VERSION

LAYER = r"[a-z][a-z0-9_-]{0,31}"
TAG = r"[A-Za-z0-9._-]{1,64}"
_HEAD = re.compile(rf"\xff([1-9][0-9]{{0,6}})((?:;{LAYER}(?::{TAG})?){{0,8}})\n".encode("latin-1"))
ENCODED_TEXT = "~"
"""Begins an encoded body in a database's text column."""


class Layer(NamedTuple):
    """One applied codec."""

    name: str
    tag: str

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}" if self.tag else self.name


class Envelope(NamedTuple):
    """A stored body. ``layers``: the codecs, in the order in which they were applied to its JSON."""

    version: int
    layers: tuple[Layer, ...]
    data: bytes

    def head(self, layers: int) -> bytes:
        """The line of the first so many layers, without the newline."""
        return ENCODED + ";".join([str(self.version), *map(str, self.layers[:layers])]).encode()

    def sealed(self) -> bytes:
        """The stored form; plain JSON if there is nothing to tell."""
        if self.version == 1 and not self.layers:
            return self.data
        return self.head(len(self.layers)) + b"\n" + self.data


def envelope_in(raw: bytes) -> Envelope:
    """The parts of a stored body.

    Raises:
        BodyDamaged: it begins like an encoded body, but its first line can't be read.
    """
    if raw[:1] != ENCODED:
        return Envelope(1, (), raw)
    head = _HEAD.match(raw)
    if head is None:
        raise BodyDamaged("its first line is not one that streamdq writes")
    layers = tuple(Layer(*_parts(text)) for text in head[2].decode().split(";")[1:])
    return Envelope(int(head[1]), layers, raw[head.end() :])


def _parts(text: str) -> tuple[str, str]:
    name, _, tag = text.partition(":")
    return name, tag


def version_in(raw: bytes) -> int:
    """The version of a stored body; 1 if it has none that can be read."""
    try:
        return envelope_in(raw).version
    except BodyDamaged:
        return 1


def check_version(version: int) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= MAX_VERSION:
        raise InvalidInput(f"version: {version!r} is not a whole number between 1 and {MAX_VERSION:,}")
    return version


def as_text(raw: bytes) -> str:
    """A stored body for a database's text column: JSON as it is, an encoded body as ~ and base64."""
    return ENCODED_TEXT + b64encode(raw).decode() if raw[:1] == ENCODED else raw.decode()


def from_text(text: str) -> bytes:
    """The reverse of as_text."""
    return b64decode(text[1:], validate=True) if text.startswith(ENCODED_TEXT) else text.encode()
