"""Mutants that no test can kill, each with the reason: `survivors.toml`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .mutant import Mutant

FILE = Path(__file__).with_suffix(".toml")


class Listed:
    def __init__(self, text: str) -> None:
        self.reasons: dict[tuple[str, str, str], str] = {}
        tables: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
        for file, entries in tables.items():
            for entry in entries:
                for now in [entry["now"]] if isinstance(entry["now"], str) else entry["now"]:
                    self.reasons[file, entry["was"], now] = entry["why"]

    def __contains__(self, mutant: Mutant) -> bool:
        return mutant.key in self.reasons

    def gone(self, mutants: Iterable[Mutant]) -> list[tuple[str, str, str]]:
        """What is listed for the files of these mutants, and is none of them."""
        keys = {mutant.key for mutant in mutants}
        files = {file for file, _, _ in keys}
        return [key for key in self.reasons if key[0] in files and key not in keys]


def entry_of(mutant: Mutant) -> str:
    """The lines with which it would be listed."""
    return f'[["{mutant.file}"]]\nwas = {_quoted(mutant.was)}\nnow = {_quoted(mutant.now)}\nwhy = ""\n'


def _quoted(text: str) -> str:
    """As it is, if TOML can have it so."""
    return json.dumps(text) if "'''" in text or text.endswith("'") else f"'''{text}'''"
