"""`python -m tests.spark.second`: analyses many events, and compares every table with its second calculation.

The history is simulated (`streamdq simulate-history`); two of its topics get another group, whose consumers have done
some of the same jobs. Exit code 1 if any row of any table differs. With `--dump` and `--tables` it checks an analysis
that is there already, of any history on this machine's disks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import zlib
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from rich.console import Console

from streamdq.demo.simulated import simulate
from streamdq.dump.arrow import arrow_schema, write_parquet
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import DumpFile, Manifest, require_manifest, update_manifest
from streamdq.terminal import table
from streamdq_spark.analysis import analyze, chosen, events_to_read, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.questions import Span
from streamdq_spark.session import session, settings_for

from .calculation import Asked, calculated, differences, names

DAYS = 84
"""So that a day has the weeks before it to which anomalies and the forecast look back."""
WORKED_TWICE = ("order.close", "payment.notify")


def widened(folder: LocalFolder) -> None:
    """Adds the group: it has the same jobs but every third, at the same times, by consumers of its own."""
    files = []
    for file in require_manifest(folder).files:
        with folder.open(file.path) as opened:
            rows = parquet.ParquetFile(opened).read()
        third = pa.array([zlib.crc32(id.encode()) % 3 == 0 for id in rows["id"].to_pylist()])
        twice = pc.and_not(pc.is_in(rows["topic"], pa.array(WORKED_TWICE)), third)
        others = rows.filter(twice)
        entries = pc.binary_join_element_wise(others["entry"], pa.scalar("7"), "")
        consumers = pc.binary_join_element_wise(others["consumer"], pa.scalar("b"), "-")
        for name, values in (("entry", entries), ("consumer", consumers), ("group", pa.array(["twice"] * len(others)))):
            at = others.schema.get_field_index(name)
            others = others.set_column(at, others.schema.field(at), values.cast(others.schema.field(at).type))
        if len(others):
            path = file.path.removesuffix(".parquet") + "-twice.parquet"
            with folder.writing(path) as out:
                write_parquet(others.cast(arrow_schema()), out)
            files.append(DumpFile(path=path, rows=len(others), bytes=folder.size(path)))

    def add(manifest: Manifest) -> None:
        manifest.files.extend(files)

    update_manifest(folder, add)


def analyzed(dump: Path, tables: Path, first: date | None) -> None:
    last = max(file.day for file in open_dump(str(dump)).files)
    wanted = plan(str(dump), str(tables), first, compare=weeks_to(last))
    with session(settings=settings_for(events_to_read(wanted))) as spark:
        analyze(spark, wanted, questions=chosen((), compare=True))


def weeks_to(last: date) -> tuple[str, str]:
    """The week before that of the last day, and the days of that one."""
    begin = last - timedelta(days=6)
    return f"{begin - timedelta(days=7)}..{begin - timedelta(days=1)}", f"{begin}..{last}"


def checked(dump: Path, tables: Path, memory: str, console: Console) -> int:
    """Prints what became of each table; returns how many differ."""
    asked = asked_of(dump, tables)
    made, wrong = table("table", "rows", "seconds", "", numbers=("rows", "seconds")), 0
    with calculated(dump, asked, memory) as second:
        for name in names():
            begun = time.perf_counter()
            wanted = second.rows(name)
            found = second.written(tables, name, asked)
            told = differences(name, found, wanted)
            wrong += bool(told)
            made.add_row(name, f"{len(wanted):,}", f"{time.perf_counter() - begun:.1f}", "; ".join(told) or "the same")
    console.print(made)
    console.print(f"{asked.first} to {asked.last}: {wrong or 'no'} tables differ")
    return wrong


def asked_of(dump: Path, tables: Path) -> Asked:
    """What the analysis that wrote these tables was asked for."""
    told: dict[str, Any] = json.loads((tables / "analysis.json").read_text())
    first, last = (date.fromisoformat(told[name]) for name in ("first_day", "last_day"))
    goes_on = any(file.day > last for file in open_dump(str(dump), quarantine=True).files)
    asked = Asked(first, last, told["slo_ms"], told["objective"], told["tz"], goes_on)
    if told["compare"] is None:
        return asked
    before, after = map(Span.parse, told["compare"])
    return replace(asked, compare=((before.since, before.until), (after.since, after.until)))


def _size(text: str) -> int:
    number, unit = text[:-1], {"k": 1_000, "M": 1_000_000}.get(text[-1])
    return int(number) * unit if unit else int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.second", description=__doc__)
    parser.add_argument("--events", type=_size, default=1_000_000, help="how many are simulated: 100k, 1M, 10M")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="first", type=date.fromisoformat, metavar="DAY", help="analyse from this day on")
    parser.add_argument("--memory", default="2GB", help="what DuckDB may use; the rest it keeps on disk")
    parser.add_argument("--dump", type=Path, help="a dump that is there already, with --tables")
    parser.add_argument("--tables", type=Path, help="what streamdq analyze has written of it")
    given = parser.parse_args()
    if (given.dump is None) != (given.tables is None):
        parser.error("--dump and --tables belong together")
    console = Console(width=160)
    if given.dump:
        return int(checked(given.dump, given.tables, given.memory, console) > 0)
    with tempfile.TemporaryDirectory(prefix="streamdq-second-") as folder:
        dump, tables = Path(folder, "dump"), Path(folder, "tables")
        simulate(LocalFolder(dump), given.events, given.days, given.seed)
        widened(LocalFolder(dump))
        begun = time.perf_counter()
        analyzed(dump, tables, given.first)
        console.print(f"the analysis took {time.perf_counter() - begun:.0f} s")
        return int(checked(dump, tables, given.memory, console) > 0)


if __name__ == "__main__":
    sys.exit(main())
