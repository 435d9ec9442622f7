"""Writes the public names into public.txt, if CHANGELOG.md has changed as well: `make api`. With --covered, a line that
it has already describes the change.
"""

from __future__ import annotations

import sys

from tests.api.snapshot import CHANGED_WITHOUT_WORDS, Snapshot, public_names, unreleased


def main(*arguments: str) -> int:
    stored, names = Snapshot.stored(), public_names()
    for line in stored.differences(names):
        sys.stdout.write(f"{line}\n")
    if names != stored.names and unreleased() == stored.changelog and "--covered" not in arguments:
        sys.stderr.write(f"{CHANGED_WITHOUT_WORDS}\n")
        return 1
    if names != stored.names:
        Snapshot(names, unreleased()).write()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
