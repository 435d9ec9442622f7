"""Which names the code and the pages use: those that have gone, by names.toml, and those of the glossary.

python -m tests.docs.names               where names are that have gone
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.source import INSTALLED, names_of_lua, names_of_python

ROOT = Path(__file__).parents[2]

_NAME = re.compile(r"[A-Za-z_]\w*")
_FENCED = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\s]+)`(?!`)")
_KEY = re.compile(r"[}:](?::)?([a-z_]+)")
_TERM = re.compile(r"^(\S.*)\n:   ", re.MULTILINE)


@cache
def retired() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))


def _files(folder: str, suffix: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
        if not INSTALLED & {*path.parts}:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def names_of_page(text: str) -> set[str]:
    """In code within sentences and tables; examples are programs of their own."""
    return {name for code in _CODE.findall(_FENCED.sub("", text)) for name in _NAME.findall(code)}


def keys_of_page(text: str) -> set[str]:
    return {name for code in _CODE.findall(_FENCED.sub("", text)) for name in _KEY.findall(code)}


def modules(path: str) -> set[str]:
    return {part.strip("_") for part in Path(path).with_suffix("").parts}


def parts(names: set[str]) -> set[str]:
    """The words of a name: ``job`` and ``ms`` of ``job_ms``. The name of a test is a sentence, which
    tests/docs/prose.py reads.
    """
    own = {split_name(name) for name in names - retired()["fine"].keys() if not name.startswith("test_")}
    words = {word for name in own for word in name.split("_")}
    return words | {word for word in retired()["words"] if "_" in word and any(word in name for name in own)}


def found() -> dict[str, list[str]]:
    """Files by kind and name, such as ``python told``."""
    found: dict[str, list[str]] = {}

    def look(kind: str, path: str, names: set[str]) -> None:
        for name in sorted(names & retired()[kind].keys()):
            found.setdefault(f"{kind} {name}", []).append(path)

    for path, text in _files("streamdq", ".py"):
        look("python", path, names_of_python(text) | modules(path))
    for path, text in _files("lua", ".lua"):
        names = names_of_lua(text) | modules(path)
        look("lua", path, names)
        look("words", path, parts(names))
    for path, text in _files("spark", ".sql"):
        look("words", path, parts(names_of_lua(text) | modules(path)))
    for folder in ("streamdq", "spark", "benchmarks", "tests"):
        for path, text in _files(folder, ".py"):
            look("words", path, parts(names_of_python(text) | modules(path)))
    for path, text in _files("docs", ".md"):
        # An ordinary word may be an option or a value. With a capital or an underscore it is a name.
        own = {name for name in names_of_page(text) if re.search(r"[A-Z_]", name)}
        look("python", path, own)
        look("lua", path, own)
        look("words", path, parts(own))
        look("keys", path, keys_of_page(text))
    keys = (ROOT / "streamdq/keys.py").read_text(encoding="utf-8")
    look("keys", "streamdq/keys.py", set(re.findall(r"\}:(\w+)", keys)))
    return found


# -- the glossary


def terms(glossary: str) -> list[str]:
    return _TERM.findall(glossary)


def as_name(term: str) -> str:
    """``Dead letter`` as ``dead_letter``."""
    return "_".join(_NAME.findall(split_name(term)))


@cache
def split_name(name: str) -> str:
    """``DeadLetter`` as ``dead_letter``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def used_names() -> str:
    """Every name of the code, with its words apart, each between spaces."""
    names: set[str] = set()
    for path, text in _files("streamdq", ".py"):
        names |= names_of_python(text) | modules(path)
    return f" {' '.join(sorted(map(split_name, names)))} "


def is_used(term: str) -> bool:
    """Whether a name is that term, its plural, or has it as a part: ``dead_letters``, ``retry_schedule_ms``."""
    return re.search(rf"[ _]{as_name(term)}(?:s|es|d|ed|n)?[ _]", used_names()) is not None


def main() -> int:
    there = found()
    for name, paths in there.items():
        kind, word = name.split()
        sys.stdout.write(f"{name}: rather {retired()[kind][word]}: {', '.join(paths)}\n")
    return 1 if there else 0


if __name__ == "__main__":
    sys.exit(main())
