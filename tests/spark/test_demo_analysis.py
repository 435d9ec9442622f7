"""What the demo ends with."""

import sys
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.demo.analysis import as_json, keep_history, say_where, write_up
from streamdq.demo.run import run_demo
from streamdq.errors import MissingExtra
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
    return keep_history(newest.url, "demo")


@pytest.mark.thorough
def test_it_is_a_page_that_stays(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = write_up(kept)
    assert page == kept / "report.html"
    assert "order.close" in page.read_text()
    assert as_json(page) == {"report": str(page)}
    say_where(page)
    assert page.as_uri() in capsys.readouterr().out


def test_without_the_extra_it_says_so_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.demo.run.Queue", None)
    monkeypatch.setitem(sys.modules, "streamdq_spark", None)
    with pytest.raises(MissingExtra, match=r"pip install 'streamdq\[analytics\]'"):
        run_demo(1.0, as_json=False, as_page=True)


def test_without_a_page_the_json_has_none() -> None:
    assert as_json(None) == {"report": None}
