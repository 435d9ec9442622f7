"""What an engine is given, and what it has to be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from streamdq.dump.folder import Folder

from ..dump_files import Dump, GoodFile
from ..possible import condition
from ..questions import Value
from ..questions.pools import pool_numbers


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine calculates from: `files`: of the dump, by the names of `questions.READ`; `columns`: of
    the events; `values`: of the parameters; and two of the tables that Python hands in, with what the fact table knows.
    """

    dump: Dump
    files: Mapping[str, tuple[GoodFile, ...]]
    columns: tuple[str, ...]
    values: Mapping[str, Value]
    known_facts: pa.Table
    waiting: pa.Table

    @property
    def all_files(self) -> tuple[GoodFile, ...]:
        return tuple({file.path: file for files in self.files.values() for file in files}.values())

    @property
    def where(self) -> str:
        """The condition of rows that can be, if there are others."""
        return condition() if any(file.impossible for file in self.all_files) else ""

    @property
    def events(self) -> int:
        """How many are read."""
        return sum(file.rows for file in self.all_files)


class Answers(ABC):
    """The tables, calculated when they are asked for; what several need is calculated once."""

    @abstractmethod
    def rows(self, name: str) -> pa.Table:
        """The rows of a table or of an intermediate result, moments in ms."""


class Engine(ABC):
    """`at_once`: so many tables are asked at the same time."""

    at_once = 1

    @abstractmethod
    def check(self, *folders: Folder) -> None:
        """Checks that it reaches these folders, before anything is written.

        Raises:
            AnalysisError: it does not.
        """

    @abstractmethod
    def answers(self, work: Work) -> AbstractContextManager[Answers]: ...


def pools_of(worked_on: Iterable[tuple[str, str | None, str]]) -> pa.Table:
    """The table `pools`, from the rows of `worked_on`."""
    rows = [(topic, group, number + 1) for (topic, group), number in pool_numbers(worked_on).items()]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.string(), pa.int32())
    return pa.table(
        {
            name: pa.array(column, kind)
            for name, column, kind in zip(("topic", "group", "pool"), columns, types, strict=True)
        }
    )
