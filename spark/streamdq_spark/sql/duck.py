"""SQL by DuckDB, which reads the files itself and starts at once."""

from __future__ import annotations

import duckdb

from streamdq.dump.local import LocalFolder

from ..dump_files import read_file
from ..engines.duck import database, parquet_files, said_by
from ..table_files import table_files
from . import EVENTS_VIEW, Found, Source, answers_nothing, event_columns, found_in, refused


def ask(source: Source, query: str, most: int | None = None, *, memory: str | None = None) -> Found:
    """The answer, at most so many rows.

    Raises:
        InvalidInput: DuckDB can't make sense of the query, or it is none.
        BadDump: a file of the dump is damaged.
    """
    assert isinstance(source.dump.folder, LocalFolder)
    with database(memory) as opened:
        opened.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
        try:
            for view, select in _views(source, source.dump.folder).items():
                opened.execute(f'CREATE VIEW "{view}" AS {select}')
            kinds = [statement.type for statement in opened.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise answers_nothing()
            answer = opened.sql(query)
            table = (answer if most is None else answer.limit(most + 1)).to_arrow_table()
        except duckdb.Error as error:
            said = said_by(error)
            if type(error) is duckdb.Error or ".parquet" in said:
                for file in source.files:
                    read_file(source.dump.folder, file)  # says which is damaged, if one is
            raise refused(said, query, source) from error
    return found_in(table, most)


def _views(source: Source, folder: LocalFolder) -> dict[str, str]:
    files = parquet_files(folder.root / file.path for file in source.files)
    views = {EVENTS_VIEW: f"SELECT {', '.join(event_columns('epoch_ms'))} FROM {files}"}  # noqa: S608
    for name in source.names:
        assert isinstance(source.tables, LocalFolder)
        own = (source.tables.root / path for path in table_files(source.tables, name))
        views[name] = f"FROM {parquet_files(own, union=True)}"
    return views
