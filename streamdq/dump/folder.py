"""A folder for files that appear whole or not at all: on a disk (local.py), or wherever fsspec reaches (remote.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from ..errors import FolderError


class Folder(ABC):
    """Paths are relative to the folder, with forward slashes."""

    url: str
    advice = "check the folder and its space"
    suffix = ""
    """Ends the names of this process's files, where no lock keeps others from giving the same."""

    @contextmanager
    def writing(self, path: str, durable: bool = True) -> Iterator[BinaryIO]:
        """A file to write to. It appears under its name when the block ends without an exception, else not at all.
        ``durable``: it then survives a power cut.
        """
        with self._telling("write", path), self._writing(path, durable) as file:
            yield file

    def write(self, path: str, content: bytes) -> None:
        with self.writing(path) as file:
            file.write(content)

    def stamp(self, path: str) -> str | None:  # noqa: ARG002
        """A value that changes whenever the file under this name is replaced; '' if there is no file; None if the
        folder can't tell (it may have locks instead).
        """
        return None

    def replace(self, path: str, content: bytes, stamp: str | None) -> None:  # noqa: ARG002
        """As write, if the file under this name still has the stamp.

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


def temporary_name(path: str) -> str:
    """Where a file is written before it is renamed."""
    pure = PurePosixPath(path)
    return str(pure.with_name(f"_{pure.name}.tmp"))
