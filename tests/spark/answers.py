"""Tables of made-up histories, as an analysis of their dump writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.base import Engine
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.waiting import Waiting
from tests.spark.dumps import as_row, write_dump
from tests.spark.frames import rows_of, written
from tests.spark.plain import Happened, Table


def answered(
    log: Iterable[Happened],
    names: Sequence[str],
    *,
    engine: Engine | None = None,
    waiting: dict[tuple[str, int], int] | None = None,
    asked_at: int = 0,
    **how: Any,
) -> dict[str, Table]:
    """Each of these tables. ``waiting``: jobs by topic and hour, in ms, known at ``asked_at``; ``how``: of `plan`."""
    with TemporaryDirectory(prefix="streamdq-tests-") as folder:
        dump, out = Path(folder, "dump"), Path(folder, "out")
        write_dump(dump, map(as_row, log), hours_each=24)
        asked = None
        if waiting is not None:
            rows = [(topic, datetime.fromtimestamp(hour / 1000, UTC), jobs) for (topic, hour), jobs in waiting.items()]
            asked = Waiting(rows, datetime.fromtimestamp(asked_at / 1000, UTC))
        analyze(engine or DuckDB(), plan(str(dump), str(out), **how), waiting=asked, questions=names)
        return {name: rows_of(written(out / name)) for name in names}


def answer(log: Iterable[Happened], name: str, **how: Any) -> Table:
    return answered(log, [name], **how)[name]
