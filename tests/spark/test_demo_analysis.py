"""What the demo ends with."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamdq import Queue
from streamdq.demo.analysis import as_json, keep_history, say_where, write_up
from tests.servers import Server
from tests.waiting import HANG_S


@pytest.fixture
def kept(newest: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Queue(newest.url, "demo") as queue:
        for n in range(3):
            queue.enqueue("order.close", {"n": n}, id=str(n))
            with queue.take("order.close", timeout=HANG_S) as claim:
                assert claim is not None
                assert claim.job.id == str(n)
    folder = keep_history(newest.url, "demo")
    assert folder
    return folder


@pytest.mark.thorough
def test_it_is_a_page_that_stays(spark: SparkSession, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = write_up(kept, lambda: nullcontext(spark))
    assert page == kept / "report.html"
    assert "order.close" in page.read_text()
    assert as_json(page) == {"report": str(page)}
    say_where(page)
    assert page.as_uri() in capsys.readouterr().out


def test_without_spark_it_says_what_to_install(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "streamdq_spark", None)
    assert write_up(kept) is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'streamdq[spark]'" in said
    assert as_json(None) == {"report": None}
