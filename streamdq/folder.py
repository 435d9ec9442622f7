"""A folder for files that appear whole or not at all: on a local disk, or wherever fsspec reaches (remote.py).

A file is written under a temporary name, which begins with an underscore so that no reader takes it for data, and then
renamed: that is atomic, and on the disk before it is renamed.
"""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from .errors import FolderBusy, FolderError


class Folder(ABC):
    """Paths are relative to the folder, with forward slashes."""

    url: str
    advice = "check the folder and its space"
    suffix = ""
    """Ends the names of this process's files, where no lock keeps others from giving the same."""

    @contextmanager
    def writing(self, path: str, durable: bool = True) -> Iterator[BinaryIO]:
        """A file to write to, which stands under its name when the block ends well; else there is none. ``durable``:
        it outlives a power cut from then on.
        """
        with self._telling("write", path), self._writing(path, durable) as file:
            yield file

    def write(self, path: str, content: bytes) -> None:
        with self.writing(path) as file:
            file.write(content)

    def stamp(self, path: str) -> str | None:  # noqa: ARG002
        """Tells what stands under a name from whatever takes its place, '' if nothing does; None: there is no telling,
        but perhaps a lock.
        """
        return None

    def replace(self, path: str, content: bytes, stamp: str | None) -> None:  # noqa: ARG002
        """As write, if what stands there is still what had the stamp.

        Raises:
            FolderBusy: another process was faster.
        """
        self.write(path, content)

    @contextmanager
    def _telling(self, doing: str, path: str) -> Iterator[None]:
        """A disk or bucket that refuses is an error that says so."""
        try:
            yield
        except OSError as error:
            raise FolderError(f"{self.url}: can't {doing} {path}: {error}; {self.advice}") from error

    def read(self, path: str) -> bytes | None:
        """What the file holds; None: there is none."""
        with self._telling("read", path):
            try:
                return self._read(path)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def remove(self, path: str) -> None:
        """The file is gone afterwards, also when it was before."""
        with self._telling("remove", path):
            self._remove(path)

    def size(self, path: str) -> int:
        with self._telling("read", path):
            return self._size(path)

    def files(self, under: str) -> list[str]:
        """The files under a folder, at any depth, temporary ones among them."""
        with self._telling("read", under):
            return self._files(under)

    @abstractmethod
    def _writing(self, path: str, durable: bool) -> AbstractContextManager[BinaryIO]:
        """As writing."""

    @abstractmethod
    def _read(self, path: str) -> bytes: ...

    @abstractmethod
    def open(self, path: str) -> Any:
        """A context manager of the file, for reading."""

    @abstractmethod
    def _remove(self, path: str) -> None: ...

    @abstractmethod
    def _size(self, path: str) -> int: ...

    @abstractmethod
    def _files(self, under: str) -> list[str]: ...

    def abandoned(self, path: str) -> bool:  # noqa: ARG002
        """Whether a file that no manifest names can't be that of a process which is still at work; asked by the one
        that has the lock.
        """
        return True

    @abstractmethod
    def full(self, path: str) -> str:
        """The path as other programs take it."""

    @contextmanager
    def lock(self, name: str, what: str, wait: bool = False) -> Iterator[None]:  # noqa: ARG002
        """One process at a time, where the folder can tell: a remote one can't.

        Raises:
            FolderBusy: another has it, and this was not to ``wait``.
        """
        yield


class LocalFolder(Folder):
    """On a disk of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    @contextmanager
    def _writing(self, path: str, durable: bool) -> Iterator[BinaryIO]:
        temporary = temporary_name(path)
        try:
            with self._create(temporary, durable) as file:
                yield file
            self.rename(temporary, path, durable)
        except BaseException:
            with suppress(OSError):
                self._remove(temporary)
            raise

    @contextmanager
    def _create(self, path: str, durable: bool) -> Iterator[BinaryIO]:
        """A new file; folders on the way are made."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        with full.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())

    def rename(self, path: str, target: str, durable: bool) -> None:
        """Takes the place of ``target``, should it exist."""
        (self.root / path).replace(self.root / target)
        if not durable:
            return
        directory = os.open((self.root / target).parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def open(self, path: str) -> Any:
        return (self.root / path).open("rb")

    def _read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def _size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def _remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def _files(self, under: str) -> list[str]:
        return sorted(
            (Path(folder) / name).relative_to(self.root).as_posix()
            for folder, _, names in os.walk(self.root / under)
            for name in names
        )

    def full(self, path: str) -> str:
        return str(self.root / path)

    @contextmanager
    def lock(self, name: str, what: str, wait: bool = False) -> Iterator[None]:
        """The kernel's lock: it ends with the process, however that ends."""
        path = self.root / f"_{name}.lock"
        with ExitStack() as stack:
            with self._telling("lock", path.name):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(path.open("wb"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError:
                    raise FolderBusy(f"{self.url}: {what} is at work there already; wait for it, or stop it") from None
            yield


def temporary_name(path: str) -> str:
    """Where a file is written before it is renamed."""
    pure = PurePosixPath(path)
    return str(pure.with_name(f"_{pure.name}.tmp"))


def open_folder(url: str) -> Folder:
    """A path, ``file://`` URL, or any URL that fsspec knows. Nothing is made yet.

    Raises:
        InvalidInput: no such scheme.
        MissingExtra: fsspec, or what it needs for the scheme, is not installed.
        FolderError: the server that the URL names does not answer, or refuses.
    """
    if "://" not in url:
        return LocalFolder(Path(url).expanduser().absolute())
    if urlsplit(url).scheme == "file":
        return LocalFolder(Path(url.removeprefix("file://")))
    from .remote import open_remote

    return open_remote(url)
