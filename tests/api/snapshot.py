"""The file of public names. Its first line has a digest of the changelog's [Unreleased] as it was when they were
written, so that no change of them gets in without a word there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from itertools import islice
from pathlib import Path

from tests.api import other_names, python_names
from tests.docs.reader import ROOT

FILE = Path(__file__).parent / "public.txt"
CHANGED_WITHOUT_WORDS = """
public.txt was not written, because CHANGELOG.md, [Unreleased], does not mention the change. Write there what users will
notice, then run `make api` again. If a line that is there covers the change, run `make api COVERED=1`."""
_HEAD = "# Public names. `make api` writes this file. Changelog: "


def public_names() -> list[str]:
    """A line for each name, sorted."""
    parts = (
        python_names.lines(), other_names.commands(), other_names.http(), other_names.settings(),
        other_names.metrics(), other_names.logs(), other_names.stored(),
    )  # fmt: skip
    return sorted({" ".join(line.split()) for part in parts for line in part})


def unreleased() -> str:
    """A digest of what the changelog says of the next release."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition("\n## [Unreleased]\n")[2]
    return sha256(re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0].strip().encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Names, and the changelog's digest of then."""

    names: list[str]
    changelog: str

    @classmethod
    def stored(cls) -> Snapshot:
        head, *names = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else [""]
        return cls(names, head.removeprefix(_HEAD))

    def write(self) -> None:
        FILE.write_text("\n".join([_HEAD + self.changelog, *self.names, ""]), encoding="utf-8")

    def differences(self, names: list[str]) -> Iterator[str]:
        """``- a name that is gone`` and ``+ a new one``, in the order of the file."""
        found = unified_diff(self.names, names, n=0, lineterm="")
        return (f"{line[0]} {line[1:]}" for line in islice(found, 2, None) if line[0] in "+-")
