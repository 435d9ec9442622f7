"""How a process stores bodies, and which it can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..errors import BodyDamaged, BodyUnreadable, InvalidInput, MissingExtra
from .encrypt import no_key
from .envelope import LAYER, TAG, Envelope, Layer, envelope_in, version_in
from .protocol import Codec, Context
from .zstd import Zstd

Seal = Callable[[str, int, bytes], bytes]
"""Makes the stored body of a job's id, version and JSON."""

_NAME, _TAG = re.compile(LAYER), re.compile(f"(?:{TAG})?")


class Bodies:
    """The bodies of one namespace. ``write``: the codecs of new bodies, in the order in which they are applied.
    ``read``: further codecs that bodies may have been stored with.

    ``max_bytes`` of a body in Redis; ``max_decoded_bytes`` of its JSON, if it has codecs.
    """

    def __init__(
        self,
        namespace: str,
        max_bytes: int,
        max_decoded_bytes: int,
        write: Sequence[Codec] = (),
        read: Iterable[Codec] = (),
    ) -> None:
        self._namespace = namespace
        self._max_bytes = max_bytes
        self._max_decoded_bytes = max_decoded_bytes
        self._write = [_checked(codec) for codec in write]
        self._codecs = {codec.name: codec for codec in [*read, *self._write]}
        self._hiding = {name for name, codec in self._codecs.items() if getattr(codec, "hides", False)} | {"encrypt"}
        if len({codec.name for codec in self._write}) < len(self._write):
            raise InvalidInput("codec: the same codec twice")

    @property
    def most_bytes(self) -> int:
        """How many bytes of JSON a new body may have."""
        return max(self._max_bytes, self._max_decoded_bytes) if self._write else self._max_bytes

    def seal(self, topic: str) -> Seal | None:
        """What stores the bodies of a topic; None if they are stored as their JSON."""
        return partial(self._seal, topic) if self._write else None

    def _seal(self, topic: str, id: str, version: int, plain: bytes) -> bytes:
        made = Envelope(version, (), plain)
        for codec in self._write:
            layers = (*made.layers, Layer(codec.name, codec.tag))
            head = Envelope(version, layers, b"").head(len(layers))
            data = codec.encode(made.data, Context(self._namespace, topic, id, head, self._max_decoded_bytes))
            if data is not None:
                made = Envelope(version, layers, data)
        stored = made.sealed()
        if len(stored) > self._max_bytes:
            raise InvalidInput(
                f"body: {len(stored)} bytes to store, more than the {self._max_bytes} allowed; keep the data elsewhere "
                "and pass its key, or raise STREAMDQ_MAX_BODY_BYTES"
            )
        return stored

    def decode(self, topic: str, id: str, raw: bytes) -> bytes:
        """The JSON of a stored body.

        Raises:
            BodyUnreadable: this process can't read it.
            BodyDamaged: nobody can.
        """
        try:
            return self._decode(topic, id, envelope_in(raw))
        except BodyUnreadable as error:
            raise type(error)(error.why, f"the body of job {id!r} in topic {topic!r} can't be read") from error

    def _decode(self, topic: str, id: str, stored: Envelope) -> bytes:
        data = stored.data
        for count in range(len(stored.layers), 0, -1):
            layer = stored.layers[count - 1]
            codec = self._codec(layer)
            context = Context(self._namespace, topic, id, stored.head(count), self._max_decoded_bytes)
            try:
                data = codec.decode(data, layer.tag, context)
            except BodyUnreadable:
                raise
            except Exception as error:  # of somebody else's codec: it may work again later
                raise BodyUnreadable(f"its codec {layer.name!r} failed: {type(error).__name__}") from error
        return data

    def _codec(self, layer: Layer) -> Codec:
        codec = self._codecs.get(layer.name)
        if codec is not None:
            return codec
        if layer.name == "encrypt":
            raise no_key(layer.tag)
        if layer.name != "zstd":
            raise BodyUnreadable(f"its codec {layer.name!r} is not configured here; see docs/bodies.md")
        try:
            return self._codecs.setdefault("zstd", Zstd())  # it needs no configuration
        except MissingExtra as missing:
            raise BodyUnreadable(str(missing)) from None

    @property
    def encrypts(self) -> bool:
        """Whether new bodies are encrypted."""
        return any(codec.name in self._hiding for codec in self._write)

    def version_in(self, raw: bytes) -> int:
        return version_in(raw)

    def hides(self, raw: bytes) -> bool:
        """Whether the stored body is encrypted, so that nothing of it may be stored elsewhere."""
        try:
            return any(layer.name in self._hiding for layer in envelope_in(raw).layers)
        except BodyDamaged:
            return True


def _checked(codec: Codec) -> Codec:
    if not _NAME.fullmatch(codec.name) or not _TAG.fullmatch(codec.tag):
        raise InvalidInput(
            f"codec: {codec.name!r} with the tag {codec.tag!r}; a name is up to 32 of a-z 0-9 _ -, a tag up to 64 of "
            "A-Z a-z 0-9 . _ -"
        )
    return codec
