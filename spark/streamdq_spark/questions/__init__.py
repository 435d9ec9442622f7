"""The questions that an analysis answers: a file of SQL for each table, in what Spark's SQL and DuckDB's share.

A file begins with its header: what it answers, what a row is, the columns with their types, and, after ``Day:``, the
column by whose UTC day rows are replaced; rows of tables without one belong to the whole time. Files in `views` are
intermediate results: each is computed once if several tables need it. A view whose header has ``Kept by day.`` tells of
each day by that day's events alone: its rows of days that an earlier run has counted come from the fact table
(facts.py). `functions.sql` holds what both call, and `functions.ENGINE.sql` what the engines name differently.
Parameters are named, as :slo_ms; Python fills them in. Hints, as /*+ BROADCAST(d) */, tell Spark how to share the work;
to DuckDB they are comments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_COLUMN = re.compile(r"^--   (\w+) +(text|integer|number|numbers|time|flag)\b", re.MULTILINE)
_DAY = re.compile(r"\bDay: (\w+)\.")
_WORD = re.compile(r"\w+")
_SOURCE = re.compile(r"(?<!DISTINCT )\b(?:FROM|JOIN) ([a-z_]+)\b")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")

Value = int | float | str | bool
QUESTIONS = (
    "punctuality", "punctuality_topics", "lateness_causes", "throughput", "retries", "dead_letters", "time_to_finish",
    "workers", "duplicates", "cost_by_topic", "cost_by_key", "advice", "anomalies", "incidents", "changes", "forecast",
    "forecast_accuracy", "capacity", "errors", "error_classes", "hosts", "budget", "budget_incidents", "flows",
)  # fmt: skip
"""The tables, in the order in which they are reported."""
COMPARED = "compared"
"""One more, where there are two time spans."""
READ = ("asked", "ended", "recent", "lately", "earlier")
"""The events of a dump, of different days: of those that are asked for; with two days after; with 14 days before the
first; of the last and the 14 days before it; with all before that any table looks back to. Of the last three, kept
views get only the days that the fact table does not have.
"""
GIVEN = ("waiting", "pools")
"""What Python hands in: what waits in Redis (topic, hour, jobs); and which queues share workers (topic, group, pool),
from the view `worked_on`.
"""
FACTS = "known_facts"
"""The rows of the fact table, which kept views begin with."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, its columns with their types, if they are declared, and what it reads."""

    name: str
    text: str
    columns: Mapping[str, str]
    day: str | None
    sources: tuple[str, ...]
    kept: bool = False

    def rendered(self, values: Mapping[str, Value]) -> str:
        """With its parameters as literals."""
        return _rendered(self.text, values)

    def with_known(self, query: str) -> str:
        """What the query finds, and of a kept view what is known as well."""
        if not self.kept:
            return query
        columns = ", ".join(f'"{name}"' for name in self.columns)
        known = f"SELECT {columns} FROM {FACTS} WHERE fact = '{self.name}'"  # noqa: S608
        return f"{known}\nUNION ALL\nSELECT {columns} FROM (\n{query}\n) AS counted"


@cache
def tables() -> Mapping[str, Statement]:
    return dict(_statements())


@cache
def views() -> Mapping[str, Statement]:
    return dict(_statements("views"))


@cache
def kept() -> Mapping[str, Statement]:
    """The views that the fact table holds."""
    return {name: view for name, view in sorted(views().items()) if view.kept}


def event_columns(statements: Iterable[Statement]) -> tuple[str, ...]:
    """The columns of events that these statements may read: whose names are in their text; and the day."""
    words = {word for one in statements if set(READ) & set(one.sources) for word in _WORD.findall(one.text)}
    return tuple(name for name, _ in _COLUMN.findall(_read("events.sql")) if name in words | {"day"})


def event_view(rows: str, columns: Sequence[str], values: Mapping[str, Value], where: str = "") -> str:
    """The query that makes of rows of a dump what the statements read; ``where``: of which of them."""
    chosen = ", ".join(f'"{name}"' for name in columns)
    text = _rendered(_without_comments(_read("events.sql")).replace(":rows", rows), values)
    only = f" WHERE {where}" if where else ""
    return f"SELECT {chosen} FROM (\n{text}\n) AS events{only}"  # noqa: S608


def functions(engine: str, values: Mapping[str, Value]) -> Iterator[str]:
    """The statements that define the functions."""
    for text in _without_comments(_read(f"functions.{engine}.sql")).split(";"):
        if text.strip():
            yield _rendered(text.strip(), values)
    for text in _without_comments(_read("functions.sql")).split(";"):
        head, _, body = text.strip().removeprefix("CREATE FUNCTION ").partition(" RETURN")
        if "(" not in head:
            continue
        kind, _, body = (body.removeprefix("S ")).partition(" RETURN")
        name, _, given = head.removesuffix(")").partition("(")
        if engine == "duckdb":
            names = ", ".join(one.split()[0] for one in given.split(","))
            yield f"CREATE MACRO {name}({names}) AS {body}"
        else:
            yield f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({given}) RETURNS {kind} RETURN {body}"


def needed(*names: str, there: Collection[str] = ()) -> list[Statement]:
    """The views that these tables or views are made of, each after those that it reads itself. `there`: views that
    need not be made any more.
    """
    found: dict[str, Statement] = {}

    def add(name: str) -> None:
        statement = statement_of(name)
        for source in statement.sources:
            made_of = "worked_on" if source == "pools" else source
            if made_of in views() and made_of not in found and made_of not in there:
                add(made_of)
        if name in views():
            found[name] = statement

    for name in names:
        if name not in there:
            add(name)
    return list(found.values())


def statement_of(name: str) -> Statement:
    """The table or view of this name."""
    return tables().get(name) or views()[name]


def declared(statement: Statement, source: str, types: Mapping[str, str]) -> str:
    """The query of its columns, with their types, from where it is. `types`: an engine's names of them."""
    columns = ", ".join(f'CAST("{name}" AS {types[kind]}) AS "{name}"' for name, kind in statement.columns.items())
    return f"SELECT {columns} FROM {source} AS answer"  # noqa: S608


@cache
def of_facts(name: str) -> bool:
    """Whether this table or view is made of the fact table, or of what Python hands in, and not of events."""
    sources = set(statement_of(name).sources)
    made_of = {source for source in sources if source in views()}
    return not sources & set(READ) and (bool(sources & set(GIVEN)) or any(s in kept() or of_facts(s) for s in made_of))


def counted(*names: str) -> list[Statement]:
    """Of the views that these tables or views are made of, those that are counted from events, and read by views and
    tables that are not.
    """
    of_events = {name for name in views() if not of_facts(name)}
    readers = [*(statement_of(name) for name in names if of_facts(name)), *needed(*names, there=of_events)]
    found = {source for reader in readers for source in reader.sources} | {name for name in names if name in kept()}
    return [views()[name] for name in sorted(found & of_events)]


def _rendered(text: str, values: Mapping[str, Value]) -> str:
    return _PARAMETER.sub(lambda found: _literal(values[found[1]]), text)


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else f"{text}e0"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _statements(folder: str = "") -> Iterator[tuple[str, Statement]]:
    for path in (_FOLDER.joinpath(folder) if folder else _FOLDER).iterdir():
        name, dot, ending = path.name.partition(".")
        if not dot or ending != "sql" or name in ("events", "functions"):
            continue
        whole = path.read_text(encoding="utf-8")
        head = whole[: len(whole) - len(_without_header(whole))]
        text = _without_comments(whole)
        day = _DAY.search(head.replace("\n-- ", " "))
        own = set(re.findall(r"(?:\bWITH|,) (\w+) AS \(", text)) | set(
            re.findall(r"^\), (\w+) AS \(", text, re.MULTILINE)
        )
        sources = tuple(dict.fromkeys(source for source in _SOURCE.findall(text) if source not in own))
        yield (
            name,
            Statement(
                name, text, dict(_COLUMN.findall(head)), day[1] if day else None, sources, "-- Kept by day." in head
            ),
        )


def _without_header(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("--"):
        lines.pop(0)
    return "".join(lines)


def _without_comments(text: str) -> str:
    return "\n".join(line.partition("--")[0].rstrip() for line in text.splitlines()).strip()


def _read(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


_FOLDER = files(__name__)
