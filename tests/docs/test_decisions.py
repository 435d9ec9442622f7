"""The records of docs/decisions/ are short, have one form, and the index lists them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))


def test_the_index_lists_all_records_by_number_and_title() -> None:
    listed = re.findall(
        r"^- \[(\d+\. .+)\]\((\S+\.md)\)$", (FOLDER / "index.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    titles = [
        (record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "), record.name) for record in RECORDS
    ]
    assert sorted(listed, key=lambda one: int(one[0].partition(".")[0])) == titles
    assert [int(title.split(".")[0]) for title, _ in titles] == [*range(1, len(RECORDS) + 1)]


@each("record", RECORDS)
def test_a_record_has_its_three_parts_and_at_most_400_words(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.+)$", text, re.MULTILINE)[1:] == ["Context", "Decision", "Consequences"]
    prose = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    assert len(prose.split()) <= 400
