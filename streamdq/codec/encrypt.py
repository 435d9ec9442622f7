"""Encryption by AES-256-GCM, which also tells whether a body was changed. Needs the extra ``encrypt``."""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from ..errors import BodyDamaged, BodyUnreadable, InvalidInput, MissingExtra
from .envelope import TAG
from .protocol import Context

_ID = re.compile(TAG)
_KEY_BYTES, _NONCE_BYTES, _MARK_BYTES = 32, 12, 4
_LEAST_BYTES = _MARK_BYTES + _NONCE_BYTES + 16  # with GCM's tag


class Encrypt:
    """Encrypts bodies with the first of the keys, and decrypts those of all of them. A key is a text ``ID=BASE64``, as
    ``new_key`` makes it. A body can only be read as that of the job it was made for: topic, id and version are bound.

    Raises:
        InvalidInput: a key can't be read. No message contains any part of a key.
    """

    name = "encrypt"
    hides = True

    def __init__(self, *keys: str) -> None:
        if not keys:
            raise InvalidInput("Encrypt: pass at least one key, such as `streamdq bodies key` prints")
        found = [_key(text, number) for number, text in enumerate(keys, 1)]
        self.tag = found[0][0]
        self._given: Callable[[], tuple[str, ...]] = lambda: keys  # nothing that prints this object shows them
        self._ciphers = {id: (_mark(key), _cipher(key)) for id, key in reversed(found)}
        if len(self._ciphers) < len(found):
            raise InvalidInput("Encrypt: two keys have the same id; each key needs its own")

    def __reduce__(self) -> tuple[Any, ...]:
        """For the queue of handlers in other processes."""
        return Encrypt, self._given()

    def __repr__(self) -> str:
        return f"Encrypt({', '.join(f'{id}=…' for id in reversed(self._ciphers))})"

    def encode(self, data: bytes, context: Context) -> bytes:
        mark, cipher = self._ciphers[self.tag]
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = cipher.encrypt(nonce, data, context.bound)
        return mark + nonce + sealed

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:
        if tag not in self._ciphers:
            raise no_key(tag)
        mark, cipher = self._ciphers[tag]
        if len(data) < _LEAST_BYTES:
            raise BodyDamaged("it was truncated")
        if data[:_MARK_BYTES] != mark:
            raise BodyUnreadable(f"it was encrypted with another key of the id {tag!r} than the one configured here")
        nonce, sealed = data[_MARK_BYTES : _MARK_BYTES + _NONCE_BYTES], data[_MARK_BYTES + _NONCE_BYTES :]
        from cryptography.exceptions import InvalidTag

        try:
            plain: bytes = cipher.decrypt(nonce, sealed, context.bound)
        except (InvalidTag, ValueError):
            raise BodyDamaged("it does not decrypt: it was changed, or is that of another job") from None
        return plain


def no_key(tag: str) -> BodyUnreadable:
    return BodyUnreadable(f"it is encrypted with the key {tag!r}, which is not configured here; see STREAMDQ_BODY_KEYS")


def new_key(id: str) -> str:
    """A new random key, as ``Encrypt`` and STREAMDQ_BODY_KEYS take it.

    Raises:
        InvalidInput: the id.
    """
    return f"{_check_id(id)}={b64encode(os.urandom(_KEY_BYTES)).decode()}"


def _check_id(id: str) -> str:
    if not _ID.fullmatch(id):
        raise InvalidInput("key: its id must be 1 to 64 of A-Z a-z 0-9 . _ -, such as 2026-11")
    return id


def _key(text: str, number: int) -> tuple[str, bytes]:
    id, there, secret = text.partition("=")
    # Not even the id is shown: the text may be the secret alone.
    if not there or not _ID.fullmatch(id):
        raise InvalidInput(f"key number {number}: not of the form ID=BASE64; `streamdq bodies key ID` makes one")
    try:
        key = b64decode(secret.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidInput(f"key number {number}: not {_KEY_BYTES} bytes in base64; `streamdq bodies key ID` makes one")
    return id, key


def _mark(key: bytes) -> bytes:
    """Tells a wrong key from a changed body: a wrong key is a mistake of a deployment, and costs no job."""
    return sha256(b"streamdq body key\0" + key).digest()[:_MARK_BYTES]


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra("cryptography", "encrypt") from None
    return AESGCM(key)
