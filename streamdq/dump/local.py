"""A folder on a disk of this machine. Its files are for their owner alone, because they hold bodies of jobs.

A file is written under a temporary name, which begins with an underscore so that no reader takes it for data. It is
synced to the disk and then renamed, which is atomic.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FolderBusy
from ..private_files import make_private_folder, private
from .folder import Folder, temporary_name


class LocalFolder(Folder):
    """Files on a local disk, with the kernel's locks."""

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
        """Creates a file, with its folders."""
        full = self.root / path
        make_private_folder(full.parent)
        with open(full, "wb", opener=private) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())

    def rename(self, path: str, target: str, durable: bool) -> None:
        """Renames the file, replacing ``target`` if it exists."""
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
        """A kernel lock: it ends with the process, however that ends."""
        path = self.root / f"_{name}.lock"
        with ExitStack() as stack:
            with self._telling("lock", path.name):
                make_private_folder(path.parent)
                file = stack.enter_context(open(path, "wb", opener=private))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError:
                    raise FolderBusy(f"{self.url}: {what} is already running there; wait for it, or stop it") from None
            yield
