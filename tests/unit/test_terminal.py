"""Tables in terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streamdq import terminal
from streamdq.operations.checks.audit import Audit, Balance
from streamdq.operations.history.job_history import JobEvent
from streamdq.operations.topics.stats import GroupStats, Stats, TopicStats
from streamdq.store.history.rows import Event, HistoryRow


@pytest.mark.parametrize("width", [45, 50, 60, 80, 200])
def test_figures_name_their_topic_and_group_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, width=width))
    topic = TopicStats(overdue_ms=1_967_000, groups={"default": GroupStats(delayed=138), "billing": GroupStats()})

    terminal.console().print(terminal.stats_view(Stats(topics={"order.close": topic})))

    shown = screen.getvalue()
    assert "ord" in shown
    assert "def" in shown
    assert "138" in shown
    assert ("overdue by" in shown) == (width >= 64)
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("width", [45, 60, 73, 74, 80])
def test_accounts_name_their_topic_and_group_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, width=width))
    accounts = [Balance("merchant.notify", "default", enqueued=7, done=5), Balance("order.close", "billing")]

    terminal.console().print(terminal.balances_view(accounts))

    for word in ("merc", "orde", "def", "bil", "enqueued", "live", "missing"):
        assert word in screen.getvalue()
    assert ("cancelled" in screen.getvalue()) == (width >= 74)
    assert max(map(len, screen.getvalue().splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_a_job_s_history_shows_whole_times_in_a_usual_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, width=width))
    row = HistoryRow(
        topic="t", shard=0, entry="1-0", event=Event.RETRY, id="j", group="default", attempt=1, step=0, consumer="c",
        created_ms=0, due_ms=1000, moved_ms=1000, started_ms=1001, finished_ms=1234, error="ValueError", reason="",
        body_bytes=1,
    )  # fmt: skip

    terminal.console().print(terminal.history_view([JobEvent(row, "ValueError: no", "")]))

    assert "1970-01-01 00:00:01.234 UTC" in screen.getvalue()
    assert ("due" in screen.getvalue()) == (width >= 106)


def test_counts_are_grouped_in_one_way() -> None:
    assert terminal.count_cell(60_000, "").plain == "60,000"
    assert terminal.counted(60_000, "job") == "60,000 jobs"


def of_many(monkeypatch: pytest.MonkeyPatch, most: int = terminal.MOST_SHOWN) -> str:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, width=200))
    topics = {f"t{number:03}": TopicStats(groups={"default": GroupStats(delayed=1)}) for number in range(300)}
    topics["t290"].groups["default"].dead = 1
    topics["t280"].overdue_ms = 60_000
    topics["t270"].groups["default"].ready = 1
    topics["t260"].unreachable = 1
    terminal.console().print(terminal.stats_view(Stats(delayed=300, ready=1, dead=1, topics=topics), most))
    return screen.getvalue()


def test_of_many_topics_those_come_first_that_need_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [line.split()[0] for line in of_many(monkeypatch).splitlines() if line.startswith("t")]
    assert shown[1:7] == ["t260", "t280", "t270", "t290", "t000", "t001"]
    assert len(shown) == 1 + terminal.MOST_SHOWN
    assert "100 more topics: --all" in of_many(monkeypatch)
    assert "299 more topics, 3 of which are in trouble" in of_many(monkeypatch, 1)
    assert "all 300 topics: 300 delayed, 1 ready, 0 running, 1 dead" in of_many(monkeypatch)


def test_all_topics_on_request_come_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = of_many(monkeypatch, 300).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("t")][1:] == [f"t{number:03}" for number in range(300)]
    assert "more topics" not in "".join(lines)


@pytest.mark.parametrize("wrong", [0, 1])
def test_of_many_accounts_those_are_shown_that_do_not_balance(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, width=200))
    balances = [Balance(f"t{number:03}", "default", enqueued=1, done=1) for number in range(300)]
    balances[299].enqueued += wrong
    terminal.console().print(terminal.audit_view(Audit(balances)))
    assert ("t299" in screen.getvalue()) == bool(wrong)
    assert "t000" not in screen.getvalue()
    assert f"{300 - wrong} accounts balance" in screen.getvalue()
