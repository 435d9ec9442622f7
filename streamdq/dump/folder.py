"""A folder for files that appear completely or not at all: on a disk (local.py), or anywhere fsspec reaches
(remote.py).
"""

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
    """A suffix for the names of this process's files, if no lock keeps others from using the same names."""

    @contextmanager
    def writing(self, path: str, durable: bool = True) -> Iterator[BinaryIO]:
        """A file to write to. It appears under its name if the block ends without an exception, otherwise not at all.
        ``durable``: it then survives a power failure.
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
        """Like ``write``, if the file under this name still has the stamp.

        Raises:
            FolderBusy: another process was faster.
        """
        self.write(path, content)

    @contextmanager
    def _telling(self, doing: str, path: str) -> Iterator[None]:
        """Turns a disk's or bucket's refusal into an error that says so."""
        try:
            yield
        except OSError as error:
            raise FolderError(f"{self.url}: can't {doing} {path}: {error}; {self.advice}") from error

    def read(self, path: str) -> bytes | None:
        """The file's content; None if there is no file."""
        with self._telling("read", path):
            try:
                return self._read(path)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def remove(self, path: str) -> None:
        """Removes the file, if it exists."""
        with self._telling("remove", path):
            self._remove(path)

    def size(self, path: str) -> int:
        with self._telling("read", path):
            return self._size(path)

    def files(self, under: str) -> list[str]:
        """The files under a folder, at any depth, including temporary ones."""
        with self._telling("read", under):
            return self._files(under)

    @abstractmethod
    def _writing(self, path: str, durable: bool) -> AbstractContextManager[BinaryIO]:
        """Implements ``writing``."""

    @abstractmethod
    def _read(self, path: str) -> bytes: ...

    @abstractmethod
    def open(self, path: str) -> Any:
        """A context manager for reading the file."""

    @abstractmethod
    def _remove(self, path: str) -> None: ...

    @abstractmethod
    def _size(self, path: str) -> int: ...

    @abstractmethod
    def _files(self, under: str) -> list[str]: ...

    def abandoned(self, path: str) -> bool:  # noqa: ARG002
        """Whether a file that is in no manifest can't belong to a running process. Asked only under the lock."""
        return True

    @abstractmethod
    def full(self, path: str) -> str:
        """The path in the form that other programs take."""

    @contextmanager
    def lock(self, name: str, what: str, wait: bool = False) -> Iterator[None]:  # noqa: ARG002
        """Lets one process in at a time, if the folder has locks; remote ones don't.

        Raises:
            FolderBusy: another process has the lock, and ``wait`` is False.
        """
        yield


def temporary_name(path: str) -> str:
    """The name under which a file is written before it is renamed."""
    pure = PurePosixPath(path)
    return str(pure.with_name(f"_{pure.name}.tmp"))
