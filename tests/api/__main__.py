"""Writes the public names into public.txt, if CHANGELOG.md says what has changed: `make api`."""

from __future__ import annotations

import sys

from tests.api.snapshot import CHANGED_WITHOUT_WORDS, Snapshot, public_names, unreleased


def main() -> int:
    stored, names = Snapshot.stored(), public_names()
    for line in stored.differences(names):
        sys.stdout.write(f"{line}\n")
    if names != stored.names and unreleased() == stored.changelog:
        sys.stderr.write(f"{CHANGED_WITHOUT_WORDS}\n")
        return 1
    if names != stored.names:
        Snapshot(names, unreleased()).write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
