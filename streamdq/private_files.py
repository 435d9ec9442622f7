"""Files and folders for their owner alone: they hold bodies of jobs, or secrets."""

from __future__ import annotations

import os
from pathlib import Path

_FILE, _FOLDER = 0o600, 0o700


def private(path: str, flags: int) -> int:
    """The ``opener`` of a file for its owner alone. An existing file keeps its rights."""
    return os.open(path, flags, _FILE)


def make_private_folder(path: Path) -> None:
    """Makes the folder, and those above it that are missing. Existing ones keep their rights."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(_FOLDER, exist_ok=True)
