"""Which engine calculates an analysis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.errors import InvalidInput, MissingExtra

from ..memory import machine_memory

if TYPE_CHECKING:
    from .base import Engine

OF_A_GIB = 5_000_000
"""So many events DuckDB takes for each GiB of the machine's memory."""
_GIB = 1 << 30
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""`spark-submit` sets it."""


class Name(StrEnum):
    """Who calculates."""

    AUTO = "auto"
    DUCKDB = "duckdb"
    SPARK = "spark"


def choose(
    asked: Name, folders: tuple[Folder, ...], events: int, master: str | None = None, memory: int | None = None
) -> tuple[Name, str]:
    """The engine, and why it is this one. ``memory``: the machine's, in bytes.

    Raises:
        MissingExtra: it is not installed.
        InvalidInput: ``master`` is for Spark, and another engine was asked for.
    """
    if asked is Name.DUCKDB and master is not None:
        raise InvalidInput(f"--master {master} is for Spark: leave it out, or pass --engine spark")
    name, why = (asked, "as asked") if asked is not Name.AUTO else _of_itself(folders, events, master, memory)
    packages, extra = (("duckdb",), "analytics") if name is Name.DUCKDB else (("pyspark", "duckdb"), "spark")
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, extra)
    return name, why


def _of_itself(folders: tuple[Folder, ...], events: int, master: str | None, memory: int | None) -> tuple[Name, str]:
    if master is not None:
        return Name.SPARK, f"for --master {master}"
    if SUBMITTED in os.environ:
        return Name.SPARK, "spark-submit has started it"
    if find_spec("pyspark") is None:
        return Name.DUCKDB, "PySpark is not installed"
    if distant := [folder.url for folder in folders if not isinstance(folder, LocalFolder)]:
        return Name.SPARK, f"{distant[0]} is not on this machine"
    gib = (machine_memory() if memory is None else memory) / _GIB
    if events > OF_A_GIB * gib:
        return Name.SPARK, f"{events:,} events are many for {gib:.1f} GiB of memory"
    return Name.DUCKDB, f"{events:,} events are few enough for this machine"


@contextmanager
def started(
    name: Name, events: int, master: str | None = None, *, memory: str | None = None, verbose: bool = False
) -> Iterator[Engine]:
    """The engine, which runs until the block ends. ``memory``: for DuckDB or for Java's heap."""
    if name is Name.DUCKDB:
        from .duck import DuckDB

        yield DuckDB(memory)
        return
    from ..session import session, settings_for
    from .spark import Spark

    with session(master, settings=settings_for(events, master), memory=memory, verbose=verbose) as spark:
        yield Spark(spark)
