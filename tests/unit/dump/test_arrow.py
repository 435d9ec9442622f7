"""How the rows of a dump are written."""

from __future__ import annotations

import io

from pyarrow import parquet

from streamdq.dump.arrow import table_in, write_parquet
from tests.dumps import START_MS, row_text


def test_what_is_hardly_there_twice_is_written_without_a_dictionary() -> None:
    entries = [(f"{START_MS + n}-0".encode(), [b"e", row_text(f"job{n}", START_MS + n).encode()]) for n in range(100)]
    table, file = table_in("t", 0, entries), io.BytesIO()
    write_parquet(table, file)
    written = parquet.ParquetFile(file)
    group = written.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    plain = {column.path_in_schema for column in columns if "RLE_DICTIONARY" not in column.encodings}
    assert plain == {"entry", "id", "created", "due", "moved", "started", "finished"}
    assert written.read().equals(table)
