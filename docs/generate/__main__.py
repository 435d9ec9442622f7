"""Prints a part of the reference in a terminal, as Markdown.

python -m docs.generate settings
"""

from __future__ import annotations

import sys

from docs.generate.parts import PARTS


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in PARTS:
        sys.stderr.write(f"python -m docs.generate PART; one of: {', '.join(PARTS)}\n")
        return 2
    sys.stdout.write(f"{PARTS[arguments[0]]()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
