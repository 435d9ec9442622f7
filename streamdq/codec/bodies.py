"""How a process stores bodies, and which it can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ..errors import BodyDamaged, BodyUnreadable, InvalidInput, MissingExtra
from ..job.job import ENCODED
from .encrypt import no_key
from .envelope import LAYER, TAG, Envelope, Layer, envelope_in, version_in
from .offload import Offload
from .protocol import Codec, Context
from .trace import NAME as TRACE
from .trace import Carried, Trace, trace_of
from .zstd import Zstd

Seal = Callable[[str, int, bytes], bytes]
"""Makes the stored body of a job's id, version and JSON."""

_NO_STORAGE = "it is in a storage of large bodies, which is not configured here; see STREAMDQ_OFFLOAD"
_SAMPLE = "pass for example [Zstd(), Encrypt(key)]; names such as 'zstd encrypt' are for STREAMDQ_CODEC"
_NAME, _TAG = re.compile(LAYER), re.compile(f"(?:{TAG})?")


def result_name(group: str, id: str) -> str:
    """The name of a job's result, where a codec takes a job's id. No job has this name."""
    return f"{id}\x1f{group}"


def result_in(name: str) -> tuple[str, str] | None:
    """The group and the id in a result's name; None: it is the id of a job."""
    id, is_result, group = name.partition("\x1f")
    return (group, id) if is_result else None


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
        self._write, self.offload = _split(write)
        if self.offload and self.offload.over > max_bytes:
            raise InvalidInput(f"Offload: over={self.offload.over} is more than STREAMDQ_MAX_BODY_BYTES, {max_bytes}")
        read = list(read)
        self._codecs = {codec.name: codec for codec in [*read, *write]}
        # Each has keys of its own, and a body is read with all that are there.
        self._others = {codec.name: codec for codec in read if codec is not self._codecs[codec.name]}
        self._hiding = {name for name, codec in self._codecs.items() if getattr(codec, "hides", False)} | {"encrypt"}

    @property
    def most_json_bytes(self) -> int:
        """How many bytes of JSON a new body may have: ``encode_body`` checks it."""
        return max(self._max_bytes, self._max_decoded_bytes) if self._write or self.offload else self._max_bytes

    def seal(self, topic: str) -> Seal | None:
        """What stores the bodies of a topic; None if they are stored as their JSON."""
        return partial(self._seal, topic) if self._write or self.offload else None

    def _seal(self, topic: str, id: str, version: int, plain: bytes) -> bytes:
        made = Envelope(version, (), plain)
        for codec in self._write:
            made = self._encoded(made, codec, topic, id)
        stored = made.sealed()
        if self.offload is None:
            self._check_size(stored)
        return stored

    def seal_result(self, topic: str, group: str, id: str, plain: bytes, most_bytes: int) -> bytes | None:
        """What is stored of a job's result, with the codecs of bodies; if it is large, it is in a file. None: it is
        larger than ``most_bytes``, and there is no storage. It blocks if there is one.

        Raises:
            BodyStorageUnavailable
        """
        if len(plain) > self._max_decoded_bytes:
            return None  # nobody would read it
        made, name = Envelope(1, (), plain), result_name(group, id)
        for codec in self._write:
            if codec.name != TRACE:
                made = self._encoded(made, codec, topic, name)
        if self.offload is not None:
            made = self._encoded(made, self.offload, topic, name)
        stored = made.sealed() if made.layers else plain
        return stored if len(stored) <= most_bytes else None

    def open_result(self, topic: str, group: str, id: str, stored: bytes) -> bytes:
        """The JSON of a stored result. It blocks if that is in a file (``blocks``).

        Raises:
            BodyUnreadable, BodyDamaged
        """
        try:
            return self._decode(topic, result_name(group, id), envelope_in(stored))
        except BodyUnreadable as error:
            raise type(error)(error.why, f"the result of job {id!r} in topic {topic!r} can't be read") from error

    def _encoded(self, made: Envelope, codec: Codec, topic: str, id: str) -> Envelope:
        layers = (*made.layers, Layer(codec.name, codec.tag))
        head = Envelope(made.version, layers, b"").head(len(layers))
        data = codec.encode(made.data, self._context(topic, id, head))
        return made if data is None else Envelope(made.version, layers, data)

    def _check_size(self, stored: bytes) -> None:
        if len(stored) > self._max_bytes:
            raise InvalidInput(
                f"body: {len(stored)} bytes to store, more than the {self._max_bytes} allowed; keep the data elsewhere "
                "and pass its key, or raise STREAMDQ_MAX_BODY_BYTES"
            )

    # -- files

    def put_away(self, topic: str, id: str, raw: bytes) -> bytes:
        """What Redis keeps of a stored body; if it is large, the rest is then in a file. It blocks.

        Raises:
            BodyStorageUnavailable
            InvalidInput: it is too large to be kept in Redis.
        """
        assert self.offload is not None
        made = envelope_in(raw)
        layers = (*made.layers, Layer(self.offload.name, self.offload.tag))
        outer = Envelope(made.version, layers, b"")
        reference = self.offload.encode(made.data, self._context(topic, id, outer.head(len(layers))))
        stored = raw if reference is None else Envelope(made.version, layers, reference).sealed()
        self._check_size(stored)
        return stored

    def brought_back(self, topic: str, id: str, raw: bytes) -> bytes:
        """The stored body as it was before ``put_away``; the same bytes if it is not in a file. It blocks.

        Raises:
            BodyUnreadable
        """
        if not self.blocks(raw):
            return raw
        stored = envelope_in(raw)
        if self.files is None:
            raise BodyUnreadable(_NO_STORAGE, f"the body of job {id!r} in topic {topic!r} can't be read")
        data = self.files.decode(stored.data, "", self._context(topic, id, b""))
        return Envelope(stored.version, stored.layers[:-1], data).sealed()

    def drop(self, topic: str, id: str, raw: bytes) -> None:
        """Deletes the file of a stored body that no job has any more; nothing if it has none. It blocks.

        Raises:
            BodyStorageUnavailable
        """
        if self.files is not None and self.blocks(raw):
            self.files.delete(envelope_in(raw).data, self._context(topic, id, b""))

    @property
    def files(self) -> Offload | None:
        """Where large bodies are read from."""
        found = self._codecs.get(Offload.name)
        return found if isinstance(found, Offload) else None

    def blocks(self, raw: bytes) -> bool:
        """Whether the body is in a file, so that reading it takes its time."""
        if raw[:1] != ENCODED:
            return False
        try:
            layers = envelope_in(raw).layers
        except BodyDamaged:
            return False
        return bool(layers) and layers[-1].name == Offload.name

    def _context(self, topic: str, id: str, head: bytes) -> Context:
        return Context(self._namespace, topic, id, head, self._max_decoded_bytes)

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
            data = self._without(stored.layers[count - 1], data, self._context(topic, id, stored.head(count)))
        return data

    def _without(self, layer: Layer, data: bytes, context: Context) -> bytes:
        """The data before the layer's codec was applied."""
        try:
            return _decoded(self._codec(layer), layer, data, context)
        except BodyDamaged:
            raise
        except BodyUnreadable as error:
            if (other := self._others.get(layer.name)) is None:
                raise
            unreadable = error
        try:
            return _decoded(other, layer, data, context)
        except BodyDamaged:
            raise
        except BodyUnreadable:
            raise unreadable from None

    def _codec(self, layer: Layer) -> Codec:
        codec = self._codecs.get(layer.name)
        if codec is not None:
            return codec
        if layer.name == "encrypt":
            raise no_key(layer.tag)
        if layer.name == Offload.name:
            raise BodyUnreadable(_NO_STORAGE)
        if layer.name == TRACE:
            return self._codecs.setdefault(TRACE, Carried())
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

    def trace_in(self, raw: bytes) -> str | None:
        """The traceparent that a stored body carries."""
        try:
            return trace_of(envelope_in(raw))
        except BodyDamaged:
            return None

    def carry_traces(self) -> None:
        """New bodies carry the trace in which they are enqueued.

        Raises:
            MissingExtra: OpenTelemetry is not installed.
        """
        if not any(isinstance(codec, Trace) for codec in self._write):
            self._write.insert(0, Trace())  # first, so that an encryption covers it

    def hides(self, raw: bytes) -> bool:
        """Whether the stored body is encrypted, so that nothing of it may be stored elsewhere."""
        try:
            return any(layer.name in self._hiding for layer in envelope_in(raw).layers)
        except BodyDamaged:
            return True


def _decoded(codec: Codec, layer: Layer, data: bytes, context: Context) -> bytes:
    try:
        return codec.decode(data, layer.tag, context)
    except BodyUnreadable:
        raise
    except Exception as error:  # of somebody else's codec: it may work again later
        raise BodyUnreadable(f"its codec {layer.name!r} failed: {type(error).__name__}") from error


def _split(write: Sequence[Codec]) -> tuple[list[Codec], Offload | None]:
    """The codecs, and the last one apart if it is Offload."""
    given = [_checked(codec) for codec in _listed(write)]
    if len({codec.name for codec in given}) < len(given):
        raise InvalidInput("codec: the same codec twice")
    if any(isinstance(codec, Offload) for codec in given[:-1]):
        raise InvalidInput("codec: Offload must be the last")
    last = given[-1] if given else None
    return (given[:-1], last) if isinstance(last, Offload) else (given, None)


def _listed(write: object) -> Iterable[Any]:
    if isinstance(write, str) or not isinstance(write, Iterable):
        raise InvalidInput(f"codec: {_shown(write)} is not a list of codecs; {_SAMPLE}")
    return write


def _checked(codec: Any) -> Codec:
    parts = (getattr(codec, "name", None), getattr(codec, "tag", None))
    if isinstance(codec, type) or not all(isinstance(part, str) for part in parts):
        raise InvalidInput(f"codec: {_shown(codec)} is not a codec; {_SAMPLE}")
    if not _NAME.fullmatch(codec.name) or not _TAG.fullmatch(codec.tag):
        raise InvalidInput(
            f"codec: {codec.name!r} with the tag {codec.tag!r}; a name is up to 32 of a-z 0-9 _ -, a tag up to 64 of "
            "A-Z a-z 0-9 . _ -"
        )
    checked: Codec = codec
    return checked


def _shown(given: object) -> str:
    """What was passed where codecs belong. A text is not quoted: it may be a key."""
    return f"the class {given.__name__}" if isinstance(given, type) else f"an object of type {type(given).__name__}"
