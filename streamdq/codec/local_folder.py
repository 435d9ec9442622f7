"""Files on this machine that are there after it has crashed, too."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}  # some file systems of networks; a folder one may not read
_MOST_KNOWN = 1_000


class LocalFolder:
    """Writes files below one folder. If that does not exist yet, it is made for its owner alone."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._lasting: set[Path] = set()  # folders that are on disk, and so are those above them

    def write(self, path: str, data: bytes) -> None:
        """Returns when the file and the folders above it are on disk. An incomplete file is removed."""
        file = Path(path)
        self._root.mkdir(0o700, parents=True, exist_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(file, data)
        except BaseException:
            with suppress(OSError):
                file.unlink()
            raise
        self._sync(file.parent)

    def _sync(self, folder: Path) -> None:
        """All that are above it, too: another process may have made one of them and not written it to disk yet."""
        _sync_folder(folder)
        if folder in self._lasting:
            return
        for above in folder.parents:
            _sync_folder(above)
            if above == self._root.parent:
                break
        if len(self._lasting) == _MOST_KNOWN:
            self._lasting.clear()
        self._lasting.add(folder)


def _write(file: Path, data: bytes) -> None:
    with file.open("xb", buffering=0) as opened:
        rest = memoryview(data)
        while rest:
            rest = rest[opened.write(rest) :]
        os.fsync(opened.fileno())


def _sync_folder(folder: Path) -> None:
    try:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
