"""What a codec is. Applications can write their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Context:
    """Which body it is, and what a codec must keep to."""

    namespace: str
    topic: str
    id: str
    head: bytes  # the version, and the codecs so far, in the order in which they were applied
    most_bytes: int  # of a result of `decode`; otherwise a small body could fill the memory

    @property
    def bound(self) -> bytes:
        """A text that differs for each job and each chain of codecs. Neither a topic nor an id contains a NUL."""
        return b"\0".join((self.topic.encode(), self.id.encode(), self.head))


class Codec(Protocol):
    """One step on a body's way into Redis, and back. Threads share it. It must be quick: it runs where ``enqueue`` is
    called, and in a worker's event loop.

    ``name``: at most 32 of a-z 0-9 _ -; it is stored with each body, so a name means the same bytes forever. ``tag``:
    stored beside it, such as the id of the key that was used: at most 64 of A-Z a-z 0-9 . _ -, or ``""``.
    """

    name: str

    @property
    def tag(self) -> str: ...

    def encode(self, data: bytes, context: Context) -> bytes | None:
        """The encoded data; None: leave this body as it is."""

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:
        """The reverse of ``encode``. ``tag``: the one that the body was stored with.

        Raises:
            BodyDamaged: the data can't be decoded, now or later; a worker buries the job.
            BodyUnreadable: this process can't decode it; a worker hands the job back. So it does after any other error.
        """
