"""A remote folder that fsspec supports: a bucket, a file server.

A file is first written locally, so only complete files are sent. Object stores accept a file whole or not at all, and
can't rename but only copy: there it is sent under its final name. Elsewhere it is sent under a temporary name and
renamed; that may be a copy as well, and may be interrupted. So the manifest, which can be checked, lists the files that
count (manifest.py).

There are no locks. Only S3 can replace the manifest on condition that it is still the one that was read. Each process
uses its own file names, so two never touch each other's files, and a file that is in no manifest counts as abandoned
only after a day.
"""

from __future__ import annotations

import errno
import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, timedelta
from pathlib import PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, cast

from ..errors import FolderBusy, FolderError, InvalidInput, MissingExtra, StreamdqError
from ..times.clock import wall_now
from .folder import Folder, temporary_name

# In these stores folders are only names, and creating one would create the bucket.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss"}
_OVERTAKEN = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_BUFFER = 1 << 16
ABANDONED_AFTER = timedelta(days=1)
"""Much longer than the time from a file to its manifest, and than differences between clocks."""


class RemoteFolder(Folder):
    """A folder anywhere that fsspec reaches."""

    advice = "check the address, the credentials, and the space there"

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url = url
        self._system = system
        self._root = root.rstrip("/")
        self.suffix = f"-{secrets.token_hex(4)}"
        names = system.protocol
        protocols = {*([names] if isinstance(names, str) else names)}
        self._takes_whole = bool(_OBJECT_STORES & protocols)
        self._compares = "s3" in protocols

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _writing(self, path: str, durable: bool) -> Iterator[BinaryIO]:  # noqa: ARG002 - a file that was sent is kept
        with NamedTemporaryFile(prefix="streamdq-") as file:
            yield cast(BinaryIO, file.file)
            file.flush()
            if self._takes_whole:
                self._send(file.name, path)
            else:
                self._send_and_rename(file.name, path)

    def _send(self, local: str, path: str) -> None:
        with _theirs():
            self._system.put_file(local, self._at(path))

    def _send_and_rename(self, local: str, path: str) -> None:
        temporary = temporary_name(path)
        try:
            with _theirs():
                self._system.makedirs(str(PurePosixPath(self._at(path)).parent), exist_ok=True)
            self._send(local, temporary)
            self._rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self._remove(temporary)
            raise

    def _rename(self, path: str, target: str) -> None:
        with _theirs():
            try:
                self._system.mv(self._at(path), self._at(target))
            except OSError:
                # Some refuse to replace a file (SFTP). In between there is only the temporary file, which is complete.
                if not self._system.exists(self._at(target)):
                    raise
                self._system.rm_file(self._at(target))
                self._system.mv(self._at(path), self._at(target))

    def stamp(self, path: str) -> str | None:
        if not self._compares:
            return None
        with self._telling("read", path):
            try:
                with _theirs():
                    return str(self._system.info(self._at(path))["ETag"])
            except FileNotFoundError:
                return ""

    def replace(self, path: str, content: bytes, stamp: str | None) -> None:
        """S3 compares and replaces in one step. If a store with S3's protocol does not support that, replaces without
        comparing.
        """
        if stamp is None:
            self.write(path, content)
            return
        condition = {"IfMatch": stamp} if stamp else {"mode": "create"}
        with self._telling("write", path):
            try:
                with _theirs():
                    self._system.pipe_file(self._at(path), content, **condition)
            except OSError as error:
                if error.errno == errno.ENOSYS:
                    self.write(path, content)
                elif _code(error) in _OVERTAKEN:
                    raise FolderBusy(f"{self.url}: another process has changed {path} meanwhile") from error
                else:
                    raise

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with _theirs():
            file = self._system.open(self._at(path), "rb")
        with io.BufferedReader(_Reading(file), _BUFFER) as reading:
            yield cast(BinaryIO, reading)

    def _read(self, path: str) -> bytes:
        with _theirs():
            return bytes(self._system.cat_file(self._at(path)))

    def _size(self, path: str) -> int:
        with _theirs():
            return int(self._system.size(self._at(path)))

    def _remove(self, path: str) -> None:
        with _theirs():
            if self._system.exists(self._at(path)):
                self._system.rm_file(self._at(path))

    def _files(self, under: str) -> list[str]:
        with _theirs():
            self._system.invalidate_cache()
            found = self._system.find(self._at(under))
            self._system.invalidate_cache()  # a cached listing would hide later changes by others
        return sorted(path.removeprefix(self._root).removeprefix("/") for path in found)

    def abandoned(self, path: str) -> bool:
        with self._telling("read", path):
            try:
                with _theirs():
                    changed = self._system.modified(self._at(path))
            except (NotImplementedError, FileNotFoundError):
                return False  # there is no telling, or nothing to tell of
        return bool(wall_now() - changed.astimezone(UTC) >= ABANDONED_AFTER)

    def full(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"


class _Reading(io.RawIOBase):
    """A remote file that raises the errors of a local one."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _theirs():
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _theirs():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _code(error: OSError) -> str:
    """S3's error code."""
    response = getattr(error.__cause__, "response", {})
    return str(response.get("Error", {}).get("Code", ""))


@contextmanager
def _theirs() -> Iterator[None]:
    """Turns the errors of a file system's library into `OSError`, which callers handle."""
    try:
        yield
    except (OSError, StreamdqError, NotImplementedError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def open_remote(url: str) -> RemoteFolder:
    """Like open_folder, for a remote URL."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra("fsspec", "dump") from error
    try:
        return RemoteFolder(url, *fsspec.core.url_to_fs(url))
    except ImportError as error:
        raise _missing(url, error) from error
    except ValueError as error:
        raise InvalidInput(f"{url}: {error}; pass a folder, or a URL that fsspec supports") from error
    except Exception as error:  # some connect at once, each with its own library and errors
        raise FolderError(f"{url}: can't be opened: {error}; {RemoteFolder.advice}") from error


def _missing(url: str, error: ImportError) -> StreamdqError:
    """The error that names the missing module, from Python, or what to install, from fsspec."""
    lacking = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    if isinstance(lacking, ModuleNotFoundError) and lacking.name:
        return MissingExtra(lacking.name)
    return InvalidInput(f"{url}: {error}")


__all__ = ["RemoteFolder", "open_remote"]
