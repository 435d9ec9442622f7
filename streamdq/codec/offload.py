"""Large bodies in files of their own, in a bucket or wherever fsspec reaches. Needs the extra ``offload``.

A file is written before its job is enqueued and named after it, so nothing but the job's record refers to it:

    URL/NAMESPACE/HOUR/TOPIC/ID.NONCE

The record keeps hour, nonce, size and hash. Topic and id come from the job, so a changed record leads to no other job's
file. The process that has seen the job end deletes the file; ``streamdq bodies sweep`` deletes those that nobody did.
"""

from __future__ import annotations

import os
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ..errors import BodyDamaged, BodyStorageUnavailable, BodyUnreadable, InvalidInput, MissingExtra
from ..times.clock import wall_now
from ..times.durations import Duration, to_ms
from .local_folder import LocalFolder
from .protocol import Context
from .storage_calls import StorageCalls

_HOUR = "%Y-%m-%dT%H"
_REFERENCE = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d)/([0-9a-f]{16}) (\d{1,12}) ([0-9a-f]{64})")
_NAME = re.compile(r"(.+)\.([0-9a-f]{16})")
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?")
_UNITS = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_LONGEST_NAME = 200  # of one name in a path: file systems take 255 bytes
# In these stores folders are only names, and creating one would create the bucket.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss"}


class StoredBody(NamedTuple):
    """A file, as its path tells."""

    topic: str
    id: str
    reference: bytes  # begins the reference in its job's record
    path: str
    size: int


class Offload:
    """Keeps bodies of more than ``over`` bytes, after the other codecs, in files at the URL. It is the last codec.
    ``timeout``: a call that writes or deletes files fails if none of them is done for so long.
    """

    name = "offload"
    tag = ""
    blocks = True

    def __init__(self, url: str, over: int | str = "32KiB", timeout: Duration = "30s") -> None:
        self._given = url, over, timeout
        self.over = size_in_bytes(over)
        self.calls = StorageCalls(_timeout_s(timeout))
        self.url = url
        system, root = _opened(url)
        self._root = root.rstrip("/")
        self._known, self._known_by = system, os.getpid()
        names = system.protocol
        self._folder = LocalFolder(self._root)
        self._has_folders = not _OBJECT_STORES & {*([names] if isinstance(names, str) else names)}

    @property
    def _system(self) -> Any:
        """The file system of fsspec. A forked child can't use its parent's."""
        if self._known_by != os.getpid():
            self._known, self._known_by = _opened(self.url)[0], os.getpid()
        return self._known

    def __reduce__(self) -> tuple[Any, ...]:
        """For the queue of handlers in other processes."""
        return Offload, self._given

    def __repr__(self) -> str:
        return f"Offload(over={self.over})"  # a URL may have a password

    def encode(self, data: bytes, context: Context) -> bytes | None:
        if len(data) <= self.over:
            return None
        hour, nonce = f"{wall_now():{_HOUR}}", secrets.token_hex(8)
        path = self._path(context, hour, nonce)
        with _writing():
            if isinstance(self._system, _local()):
                self._folder.write(path, data)
            else:
                if self._has_folders:
                    self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._system.pipe_file(path, data)
        return f"{hour}/{nonce} {len(data)} {sha256(data).hexdigest()}".encode()

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:  # noqa: ARG002
        hour, nonce, size, digest = _parts(data)
        if size > context.most_bytes:
            raise BodyUnreadable(f"it has {size} bytes, more than STREAMDQ_MAX_DECODED_BYTES allows here")
        try:
            content = bytes(self._system.cat_file(self._path(context, hour, nonce), start=0, end=size))
        except FileNotFoundError:
            raise BodyUnreadable("its file is not in the storage that is configured here") from None
        except Exception as error:  # each storage has errors of its own
            raise BodyUnreadable(f"its storage does not answer: {type(error).__name__}") from error
        if len(content) != size or sha256(content).hexdigest() != digest:
            raise BodyDamaged("its file was changed")
        return content

    def delete(self, data: bytes, context: Context) -> None:
        """Deletes the file of a reference. No error if it is gone.

        Raises:
            BodyStorageUnavailable
        """
        hour, nonce, *_ = _parts(data)
        self.remove(self._path(context, hour, nonce))

    def remove(self, path: str) -> None:
        """As ``delete``, by the path."""
        with _writing():
            try:
                self._system.rm_file(path)
            except FileNotFoundError:
                return

    def _path(self, context: Context, hour: str, nonce: str) -> str:
        return "/".join(
            (self._root, _quoted(context.namespace), hour, _quoted(context.topic), f"{_quoted(context.id)}.{nonce}")
        )

    # -- for the sweep

    def hours(self, namespace: str, older_than: timedelta) -> list[str]:
        """The paths of all files that were written so long ago, by the hour."""
        top = f"{self._root}/{_quoted(namespace)}"
        until = f"{wall_now() - older_than - timedelta(hours=1):{_HOUR}}"
        with _writing():
            self._system.invalidate_cache()
            try:
                found = self._system.ls(top, detail=False)
            except FileNotFoundError:
                return []
        return sorted(path for path in found if _is_hour(hour := path.rstrip("/").rpartition("/")[2]) and hour <= until)

    def written_in(self, hour: str) -> list[StoredBody]:
        """The files of one of ``hours``. Others that are there are left alone."""
        with _writing():
            found = self._system.find(hour, detail=True)
        bodies = (_body_at(path, hour, int(info.get("size") or 0)) for path, info in sorted(found.items()))
        return [body for body in bodies if body is not None]

    def clear_away(self, hour: str) -> None:
        """Removes the folders of an hour, where there are folders, if nothing is left in them."""
        if not self._has_folders:
            return
        with _writing():
            found = self._system.find(hour, withdirs=True, detail=True)
            folders = [path for path, info in found.items() if info["type"] == "directory"]
        for folder in sorted({*folders, hour}, key=len, reverse=True):
            with suppress(OSError):  # something is in it
                self._system.rmdir(folder)


def _timeout_s(timeout: Duration) -> float:
    seconds = to_ms(timeout, "timeout") / 1000
    if not seconds:
        raise InvalidInput("timeout: must be longer than 0")
    return seconds


def size_in_bytes(size: int | str) -> int:
    """
    Raises:
        InvalidInput: it is neither a number nor a text such as 32KiB.
    """
    found = _SIZE.fullmatch(str(size).strip())
    if found is None or isinstance(size, bool):
        raise InvalidInput(f"over: {size!r} is not a size; write for example 32KiB")
    return int(found[1]) * _UNITS[found[2]]


def _parts(data: bytes) -> tuple[str, str, int, str]:
    found = _REFERENCE.fullmatch(data)
    if found is None:
        raise BodyDamaged("the reference to its file can't be read")
    return found[1].decode(), found[2].decode(), int(found[3]), found[4].decode()


def _is_hour(name: str) -> bool:
    try:
        datetime.strptime(name, _HOUR)  # noqa: DTZ007 - only the form
    except ValueError:
        return False
    return True


def _quoted(text: str) -> str:
    """A topic or id as names in a path: percent-encoded; a long one as base64 in parts, all but the last with a ~."""
    short = quote(text, safe="").replace("~", "%7E")
    if short in (".", ".."):
        return short.replace(".", "%2E")  # else they lead elsewhere
    if len(short) <= _LONGEST_NAME:
        return short
    whole = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    parts = [whole[i : i + _LONGEST_NAME] for i in range(0, len(whole), _LONGEST_NAME)]
    return "/".join([*(f"~{part}" for part in parts[:-1]), f"={parts[-1]}"])


def _unquoted(names: list[str]) -> str:
    """The reverse, which takes its names from the front of the list."""
    first = names.pop(0)
    if first[:1] not in ("~", "="):
        return unquote(first)
    whole = first[1:]
    while first.startswith("~"):
        first = names.pop(0)
        whole += first[1:]
    return urlsafe_b64decode(whole + "=" * (-len(whole) % 4)).decode()


def _body_at(path: str, hour: str, size: int) -> StoredBody | None:
    """None: the path is not one of ours."""
    *folders, last = path.removeprefix(hour).strip("/").split("/")
    found = _NAME.fullmatch(last)
    if found is None:
        return None
    try:
        names = [*folders, found[1]]
        topic, id = _unquoted(names), _unquoted(names)
    except (ValueError, IndexError):
        return None
    if names:
        return None
    reference = f"{hour.rpartition('/')[2]}/{found[2]} ".encode()
    return StoredBody(topic, id, reference, path, size)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each storage has errors of its own
        raise BodyStorageUnavailable(
            f"the storage of large bodies failed: {type(error).__name__}; check STREAMDQ_OFFLOAD, its credentials, and "
            "the space there"
        ) from error


def _local() -> type:
    from fsspec.implementations.local import LocalFileSystem

    found: type = LocalFileSystem
    return found


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("fsspec", "offload") from None
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except ImportError as error:
        lacking = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        raise MissingExtra(getattr(lacking, "name", None) or str(error)) from error
    except ValueError as error:
        raise InvalidInput(f"Offload: {error}; pass a URL that fsspec supports") from error
    return found
