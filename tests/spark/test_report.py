"""The report: one file that needs no other, says what it can't know, and shows names as they are."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamdq.config import GroupSettings, TopicSettings
from streamdq.dump.local import LocalFolder
from streamdq_spark.dump_files import BadFile
from streamdq_spark.report import TABLES, About, load_tables, render, write_report
from streamdq_spark.report.charts import log_marks, ranges
from streamdq_spark.report.failures import retries
from streamdq_spark.report.svg import cut, text_width, ticks
from streamdq_spark.report.todo import advised
from streamdq_spark.report.words import number, percent, short, size, span, unit_for
from tests.spark.dumps import EPOCH, START
from tests.spark.logs import corners, done, random_log
from tests.spark.plain import DAY, HOUR, WEEK, Happened
from tests.spark.reports import HOSTILE, MADE_AT, covered, hostile, report_of, tables_of

AT = 1_770_000_000_000


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


TOPICS = {"rhythm", "hopeless", "few", "long", "gone"}
"""Of the corners."""


@pytest.fixture(scope="module")
def log() -> list[Happened]:
    return random_log(seed=3, jobs=300) + [e for e in corners() if e.topic in TOPICS]


@pytest.fixture(scope="module")
def every(log: list[Happened]) -> dict[str, list[dict[str, Any]]]:
    return tables_of(log)


@pytest.fixture(scope="module")
def html(log: list[Happened], every: dict[str, list[dict[str, Any]]]) -> str:
    first, last = (datetime.fromtimestamp(at(e.finished for e in log) / 1000, UTC).date() for at in (min, max))
    return render(every, About(covered(first, last, len(log)), MADE_AT))


def test_it_needs_no_other_file(html: str) -> None:
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"script", "iframe", "object", "embed", "img", "base", "form"}
    links = [
        value or "" for _, own in page.tags for name, value in own.items() if name in {"href", "src", "xlink:href"}
    ]
    assert links
    assert all(link.startswith(("#", "data:,")) for link in links)
    assert not re.search(r"@import|url\(|https?://", html)


def cards(html: str) -> dict[str | None, str]:
    """How each section is shown, by its id."""
    found = [(own, (own.get("class") or "").split()) for _, own in Page(html).tags]
    return {own.get("id"): " ".join(style) for own, style in found if "card" in style}


def test_every_section_is_there_once(html: str) -> None:
    ids = [own["id"] for _, own in Page(html).tags if "id" in own]
    assert len(ids) == len(set(ids))
    assert len(cards(html)) == 17


@pytest.mark.thorough
def test_what_asks_for_nothing_is_one_line() -> None:
    calm = cards(report_of([done("t", AT + i, id=f"{i}") for i in range(2000)]))
    assert [id for id, style in calm.items() if style == "card shown"] == ["throughput"]
    assert calm["punctuality"] == "card", "folded"
    assert calm["anomalies"] == "card line", "too little data"
    late = cards(report_of([done("t", AT + i, id=f"{i}", due=AT + i - 2000) for i in range(2000)]))
    shown = [id for id, style in late.items() if style == "card shown"]
    assert shown == ["throughput", "punctuality", "budget", "causes"]


def test_a_topic_has_one_colour(html: str) -> None:
    """In all charts, and no other topic has it."""
    styles = re.findall(r'class="(s\d)"><title>(?:[^,<]*, )?(\w+)(?: ·[^:<]*)?: [^<]*</title>', html)
    found = {(style, topic) for style, topic in styles if topic in TOPICS}
    own = [(style, topic) for style, topic in found if style != "s7"]
    assert {"rhythm", "hopeless"} <= {topic for _, topic in own}
    assert len(own) == len({style for style, _ in own}) == len({topic for _, topic in own})


def test_times_are_by_the_clocks_of_the_zone() -> None:
    log = [done("t", AT + hour * HOUR, id=f"{hour}") for hour in range(5)]
    utc, paris = (Page(report_of(log, tz=tz)).text for tz in ("UTC", "Europe/Paris"))
    assert "the busiest hour was Mon 2 Feb 02:00 with 1." in utc
    assert "the busiest hour was Mon 2 Feb 03:00 with 1." in paris
    assert "times are UTC" in utc
    assert "times are by the clocks of Europe/Paris" in paris


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    """In the night in which the clocks of Paris are set back, at 01:00 UTC."""
    first = ms(datetime(2026, 10, 24, 23, tzinfo=UTC))
    log = [done("t", first + hour * HOUR + n, id=f"{hour}.{n}") for hour in range(5) for n in range(10 + hour)]
    html = report_of(log, tz="Europe/Paris")
    assert "the busiest hour was Sun 25 Oct 04:00 with 14." in html
    assert re.findall(r"<title>([\d:]+), t: (\d+)</title>", html)[:5] == [
        ("01:00", "10"), ("02:00", "11"), ("02:00", "12"), ("03:00", "13"), ("04:00", "14"),
    ]  # fmt: skip


def test_the_next_24_hours_are_24_where_clocks_are_set_back() -> None:
    begin = ms(datetime(2026, 10, 24, 20, tzinfo=UTC))
    hours = [EPOCH + timedelta(milliseconds=begin + n * HOUR) for n in range(24)]
    rest: dict[str, Any] = {"expected": 2.0, "low": 1.0, "high": 3.0, "weeks": 7, "waiting": None, "load": 2.0}
    tables = {"forecast": [{"topic": "t", "hour": hour, **rest} for hour in hours]}
    days = date(2026, 10, 24), date(2026, 10, 24)
    html = render(tables, About(covered(*days, tz="Europe/Paris"), MADE_AT))
    assert "About 48 attempts in 24 hours, the most from Sat 24 Oct 22:00 on: 2." in html


def test_a_day_s_mean_is_that_of_the_days_which_were_analysed() -> None:
    """Seven of UTC are parts of eight in New York."""
    log = [done("t", ms(START) + hour * HOUR, id=f"{hour}") for hour in range(7 * 24)]
    assert "168 done, 24 a day" in report_of(log, tz="America/New_York")


def test_each_section_says_the_time_that_its_figures_are_of(html: str) -> None:
    shown = [own for _, own in Page(html).tags if own.get("class") == "answer"]
    spans = [own for _, own in Page(html).tags if own.get("class") == "span"]
    assert len(spans) > len(shown)


def test_processes_of_a_host_are_together() -> None:
    names = ("shop-1-17-00000000aa", "shop-1-99-00000000ab", "shop-2-17-00000000ac", "named-by-hand")
    log = [done("t", AT + 1000 * n, id=f"{n}", consumer=name, due=AT) for n, name in enumerate(names)]
    text = Page(report_of(log)).text
    assert "4 processes on 3 hosts" in text
    assert "shop-1-17" not in text


def test_a_chart_has_a_title_and_says_what_it_shows(html: str) -> None:
    page = Page(html)
    charts = [own for tag, own in page.tags if tag == "svg"]
    assert len(charts) >= 18, "each drawn wide and narrow"
    ids = {own["id"]: tag for tag, own in page.tags if "id" in own}
    for chart in charts:
        title, text = (chart["aria-labelledby"] or "").split()
        assert (chart["role"], ids[title], ids[text]) == ("img", "title", "desc")


def test_names_are_shown_and_not_run(log: list[Happened]) -> None:
    last = max(e.finished for e in log)
    page = Page(report_of(hostile([e for e in log if e.finished > last - 8 * DAY][::9])))
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert not [own for _, own in page.tags if any(name.startswith("on") for name in own)]
    assert HOSTILE in page.text


def test_a_name_does_not_turn_the_text_around_it() -> None:
    html = report_of([done("\u202eabc\0\u2066", AT + n, id=f"{n}") for n in range(20)])
    assert r"\u202eabc\x00\u2066" in html
    assert not set("\u202e\u2066\0") & set(html)


@pytest.mark.parametrize("log", [[], [done("t", AT)], [done("t", AT, event="cancelled", started=None)]])
def test_too_little_data_is_said(log: list[Happened]) -> None:
    text = Page(report_of(log)).text
    assert "This needs three complete weeks" in text
    assert "There is too little data" in text
    assert "No retry of a job ended in this period." in text
    assert "nan" not in text
    assert "None" not in re.sub(r"None: no job was given up", "", text)


def test_the_headline_says_how_many_and_how_punctual() -> None:
    log = [done("t", AT + i, id=f"{i}", due=AT + i - 50 - (2000 if i < 50 else 0)) for i in range(2000)]
    text = Page(report_of(log)).text
    assert "97.5 %" in text
    assert "2,000" in text
    assert "2.5 ×" in text, "of the error budget"


@pytest.mark.thorough
def test_the_headline_says_what_got_worse() -> None:
    def late(week: int, share: int) -> list[Happened]:
        start = AT + week * WEEK
        return [done("sms", start + i, id=f"{week}.{i}", due=start - (9000 if i < share else 0)) for i in range(1000)]

    text = Page(report_of(late(0, 10) + late(1, 200))).text
    assert "sms: late starts 1.0 % → 20.0 %" in text
    assert "order.close" not in text


def test_what_the_figures_lack_is_said() -> None:
    log = [done("t", AT)]
    assert "never reached the dump" not in report_of(log)
    assert "3 events never reached the dump" in report_of(log, lost=3)
    assert "1 unreadable file of the dump" in report_of(log, quarantined=[BadFile("events/x", "is missing", 1)])
    assert "went back" not in report_of(log)
    assert "went back to an earlier state, once." in report_of(log, resets=1)
    assert "went back to an earlier state, 3 times." in report_of(log, resets=3)


def test_the_size_stays_small(html: str) -> None:
    assert len(html) < 600_000


def retried(topic: str, at: int) -> list[Happened]:
    failed = done(topic, at, event="retry", error="E" * 100)
    return [failed, done(topic, at + 1000, id=failed.id, created=failed.created, attempt=2, step=1)]


@pytest.mark.parametrize("ms", [0, 1, 10, 1000, 60_000, 7 * DAY, 30 * DAY])
def test_times_that_are_all_the_same_are_drawn(ms: int) -> None:
    html = report_of([done("t", AT + ms, id="a", due=AT, started=AT + ms), done("t", AT + ms, id="b", due=AT)])
    assert "Lateness by topic" in html


@pytest.mark.parametrize("early_ms", [1, 100, DAY])
def test_a_start_before_its_time_as_after_a_clock_was_set_back_is_drawn(early_ms: int) -> None:
    assert f"-{early_ms} ms" in report_of([done("t", AT, due=AT - 50 + early_ms)])


@pytest.mark.parametrize(
    ("days", "unit"),
    [
        (2, "hour"),
        (3, "day"),
        *(pytest.param(*long, marks=pytest.mark.thorough) for long in ((120, "day"), (121, "week"), (400, "week"))),
    ],
)
def test_long_times_are_drawn_coarsely(days: int, unit: str) -> None:
    html = report_of([done("t", AT, id="a"), done("t", AT + days * DAY, id="b")])
    assert f"Done per {unit}, by topic" in html
    assert len(html) < 600_000


def test_tables_are_read_for_the_days_of_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "throughput" / "quarter=2026Q1"
    folder.mkdir(parents=True)
    days = ["2026-01-05", "2026-01-06", "2026-01-07"]
    pq.write_table(pa.table({"topic": days, "dt": days}), folder / "rows.parquet")
    (folder / "_rows.parquet.tmp").write_bytes(b"PAR1")  # of a write that was killed
    tables = load_tables(LocalFolder(tmp_path), TABLES, date(2026, 1, 6), date(2026, 1, 7))
    assert tables == {"throughput": [{"topic": "2026-01-06"}, {"topic": "2026-01-07"}]}


def test_tables_of_an_earlier_analysis_are_no_part_of_it(tmp_path: Path) -> None:
    days = date(2026, 1, 5), date(2026, 1, 6)
    for name in ("throughput", "retries"):
        folder = tmp_path / name / "quarter=2026Q1"
        folder.mkdir(parents=True)
        rows = pa.Table.from_pylist(tables_of([done("t", AT)])[name]).append_column("dt", pa.array(["2026-01-05"]))
        pq.write_table(rows, folder / "rows.parquet")
    summary = covered(*days, tables={"throughput": 1})
    write_report(LocalFolder(tmp_path), summary, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert 'id="throughput"' in html
    assert 'id="retries"' not in html


@pytest.mark.thorough
def test_what_was_not_worked_out_is_left_out(every: dict[str, list[dict[str, Any]]]) -> None:
    about = About(covered(date(2026, 1, 5), date(2026, 1, 6)), MADE_AT)
    for name in TABLES:
        html = render({name: every[name]}, about)
        assert len(cards(html)) == (
            name
            not in (
                "punctuality",
                "incidents",
                "forecast_accuracy",
                "changes",
                "budget_incidents",
                "error_classes",
                "compared",
                "cost_by_key",
            )
        )
    assert "Jobs done" not in Page(render({}, about)).text


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (number(1234567), "1,234,567"), (number(0), "0"), (number(2.5), "2.5"), (number(None), "–"),
        (short(1_200_000), "1.2 M"), (short(0.5), "0.5"), (short(20_000), "20 k"),
        (span(0), "0 ms"), (span(7.25), "7.2 ms"), (span(999), "999 ms"), (span(15_000), "15 s"),
        (span(59_999), "60 s"), (span(90_000), "1 min 30 s"), (span(3_600_000), "1 h"), (span(None), "–"),
        (span(3_605_000), "1 h"), (span(200_000_000), "2 d 7 h"),
        (percent(1), "100 %"), (percent(0), "0 %"), (percent(0.9996), "99.96 %"), (percent(0.99999), "99.999 %"),
        (percent(0.9999999), "> 99.999 %"), (percent(0.0000001), "< 0.001 %"), (percent(0.05), "5.0 %"),
        (percent(None), "–"), (size(0), "0 B"), (size(1_234_567), "1.2 MB"),
    ],
)  # fmt: skip
def test_figures_are_written_for_people(shown: str, wanted: str) -> None:
    assert shown == wanted


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (2, 12, [1, 10, 30]),
        (2, 31, [1, 10, 100]),
        (20, 70, [10, 100]),
        (10, 25, [10, 30]),
        (1, 2, [1, 3]),
        (3, 2500, [1, 10, 100, 1000, 10_000]),
        (500, 2500, [100, 1000, 3000]),
        (70_000, 100_000, [60_000, 180_000]),
    ],
)
def test_a_log_axis_begins_and_ends_near_what_it_shows(low: float, high: float, marks: list[float]) -> None:
    assert log_marks(low, high) == marks


def test_the_labels_of_a_log_axis_have_room() -> None:
    rows = [("t", 1.0, 20.0, 15_000_000.0)]
    drawing = str(ranges(340, "title", "text", "axis", rows, ["s0"]).__html__())
    places = re.findall(r'<text x="([\d.]+)"[^>]*class="tick"([^>]*)>([^<]*)<', drawing)
    ends = []
    for x, more, text in places:
        before = {"": 0.0, "middle": 0.5, "end": 1.0}["".join(re.findall(r'anchor="(\w+)"', more))]
        ends.append((float(x) - before * text_width([text]), text_width([text])))
    assert len(ends) >= 4
    assert all(left + width < after for (left, width), (after, _) in pairwise(ends))


@pytest.mark.parametrize("name", ["日" * 85, "W" * 255, "x" * 255, "\u202e" * 99, "Order.Close.Long.Name.In.Capitals"])
def test_a_name_is_cut_to_its_room_as_it_is_shown(name: str) -> None:
    shown = cut(name, 150)
    assert shown.endswith("…")
    assert 120 < text_width([shown]) <= 150
    assert cut("appointment.remind", 150) == "appointment.remind"


def test_some_letters_are_wider_than_others() -> None:
    assert text_width(["日"]) > text_width(["W"]) > text_width(["A"]) > text_width(["a"]) > text_width(["i"])
    assert text_width(["\u202e"]) == text_width([r"\u202e"]), "as it is shown"


def test_short_times_are_drawn_in_a_unit_that_can_be_read() -> None:
    assert [unit_for(ms)[0] for ms in (25, 1000, 59_999, 60_000, 3_600_000)] == [
        "ms", "seconds", "seconds", "minutes", "hours",
    ]  # fmt: skip
    html = report_of([done("t", AT + n, id=f"{n}") for n in range(5)])
    assert "ms, added up" in html
    assert "hours, added up" not in html


@pytest.mark.parametrize("top", [0.3, 1, 7, 10, 99, 101, 12345])
def test_an_axis_has_few_round_ticks_up_to_the_top(top: float) -> None:
    marks = ticks(top)
    assert marks[0] == 0
    assert top <= marks[-1] <= top * 2
    assert 2 <= len(marks) <= 7
    assert f"{marks[1]:e}"[0] in "125"


def test_dead_letters_that_were_sent_back_are_not_shown_as_left() -> None:
    def buried(id: str, *events: str) -> list[Happened]:
        rest: dict[str, Any] = {"id": id, "created": AT, "error": "E", "reason": "exhausted"}
        return [done("t", AT + 1000 + n, event=event, **rest) for n, event in enumerate(events)]

    log = buried("a", "dead") + buried("b", "dead", "kicked", "done") + buried("c", "dead", "kicked", "dead")
    text = Page(report_of(log)).text
    assert "2 jobs. The largest cause, 100 % of them: t, retry steps used up (E). 4 were given up, and 2" in text
    assert "given up, less 2 sent back" in text
    text = Page(report_of(buried("b", "dead", "kicked"))).text
    assert "Nothing is left: 1 given up, and all sent back." in text
    assert "less 1 sent back" in text


def test_a_heat_map_is_deepest_where_the_objective_is_missed() -> None:
    log = [done("t", AT + hour * HOUR, id=f"{hour}", due=AT + hour * HOUR - 50 - late)
           for hour, late in enumerate((0, 500, 1000, 90_000))]  # fmt: skip
    html = report_of(log)
    depth = {
        shown: float(opacity)
        for opacity, shown in re.findall(r'class="cool" fill-opacity="([\d.]+)"><title>[^<]*: ([^<:]+)</title>', html)
    }
    assert depth == {"0 ms": 0.06, "500 ms": 0.53, "1 s": 1, "1 min 30 s": 1}
    assert "0 to 1 s and more" in html
    assert "0 to 1 % and more" in Page(html).text.replace("1.0 %", "1 %"), "of the attempts, by the objective"
    assert "0 to 2 min" in report_of(log, slo_ms=120_000)
    assert "0 to 2 min and more" not in report_of(log, slo_ms=120_000)


def test_ids_lead_to_the_operations_page_if_there_is_one() -> None:
    rest: dict[str, Any] = {"id": "a/b é", "event": "dead", "error": "E", "reason": "exhausted"}
    log = [done("t#1", AT, **rest), done("t#1", AT + 1, **rest | {"event": "reclaimed"})]
    found = [
        own for _, own in Page(report_of(log, page="https://ops.example/q/")).tags if own.get("rel") == "noreferrer"
    ]
    assert [own["href"] for own in found] == ["https://ops.example/q/topics/t%231/jobs/a%2Fb%20%C3%A9"] * 3
    assert "https://" not in report_of(log)


# -- do this first


def advice_row(**more: Any) -> dict[str, Any]:
    """Of the topic t: nothing to do."""
    return {
        "topic": "t", "group": "default", "done": 4000, "p50_ms": 10.0, "p99_ms": 20.0, "p999_ms": 900.0,
        "max_ms": 4000, "cut_off": 0, "share_cut_off": 0.0, "ttr_ms": None, "ttr_verdict": "too few",
        "waits_ms": None, "keep_steps": None, "retried": 0, "retry_verdict": "no retries",
    } | more  # fmt: skip


SHORTEN = {"waits_ms": [15_001.0, 179_999.5, 21_600_000.0], "keep_steps": 1, "retry_verdict": "shorten"}


def steps(*of_step: tuple[float | None, int, int], group: str = "default") -> list[dict[str, Any]]:
    """Wait, attempts and done of each step from 0 on."""
    return [
        {"topic": "t", "group": group, "step": step, "wait_ms": wait, "attempts": tries, "done": done}
        for step, (wait, tries, done) in enumerate(of_step)
    ]


def test_a_schedule_that_is_too_long_is_shown_with_what_it_cost() -> None:
    tables = {
        "advice": [advice_row(**SHORTEN)],
        "retries": steps((None, 900, 500), (15_001.0, 400, 100), (179_999.5, 1300, 2), (21_600_000.0, 1100, 0)),
    }
    (one,) = advised(tables, None)
    assert (one.today, one.proposed) == ("15s 3m 6h (as seen)", "15s")
    assert one.command == "streamdq topic configure t --retry 15s"
    assert one.effect == (
        "2,400 attempts would have been saved; 2 of them succeeded, and these jobs would have been given up. "
        "Jobs that fail permanently are given up 6 h 3 min sooner."
    )
    assert one.note == ""


def test_what_redis_has_is_today_s_value() -> None:
    tables = {"advice": [advice_row(**SHORTEN)]}
    (one,) = advised(tables, {"t": TopicSettings(retry="20s 4m 6h 1d")})
    assert (one.today, one.proposed) == ("20s 4m 6h 1d", "20s")
    assert one.command == "streamdq topic configure t --retry 20s"
    assert advised(tables, {"t": TopicSettings(retry="20s")}) == [], "it is set already"


def test_a_handler_s_own_setting_is_pointed_out() -> None:
    own = TopicSettings(
        retry="none", groups={"default": GroupSettings(retry="1s 2s"), "other": GroupSettings(ttr_ms=1)}
    )
    (one,) = advised({"advice": [advice_row(**SHORTEN)]}, {"t": own})
    assert (one.today, one.proposed) == ("1s 2s", "1s")
    assert one.note.startswith("Group default has its own")


def test_no_retry_at_all_and_a_wait_that_nobody_saw() -> None:
    (none,) = advised({"advice": [advice_row(**SHORTEN | {"keep_steps": 0})]}, None)
    assert none.command == "streamdq topic configure t --retry none"
    seen = steps((None, 900, 500), (None, 400, 100), (60_000.0, 1300, 0))
    (unseen,) = advised({"advice": [advice_row(**SHORTEN | {"waits_ms": [None, 60_000.0]})], "retries": seen}, None)
    assert (unseen.proposed, unseen.command) == ("its first step", "")


def test_a_topic_s_setting_suits_all_its_groups() -> None:
    more = advice_row(group="audit", **SHORTEN | {"waits_ms": [15_000.0] * 4, "keep_steps": 2})
    (one,) = advised({"advice": [advice_row(**SHORTEN), more]}, None)
    assert one.proposed == "15s 15s"
    helps = more | {"retry_verdict": "ok"}
    assert advised({"advice": [advice_row(**SHORTEN), helps]}, None) == []
    times = [advice_row(ttr_ms=10_000, ttr_verdict="ok"), advice_row(group="audit", ttr_ms=20_000, ttr_verdict="ok")]
    today = {"t": TopicSettings()}
    assert [one.proposed for one in advised({"advice": times}, today)] == ["20 s"]
    assert advised({"advice": [times[0], advice_row(group="audit")]}, today) == [], "too little is known of one"


def test_a_ttr_is_shown_with_what_took_longer() -> None:
    ok = {"advice": [advice_row(ttr_ms=10_000, ttr_verdict="ok")]}
    (one,) = advised(ok, {"t": TopicSettings(ttr_ms=60_000)})
    assert (one.today, one.proposed) == ("1 min", "10 s")
    assert one.command == "streamdq topic configure t --ttr 10s"
    assert one.effect == (
        "None of 4,000 successful attempts took longer; the longest took 4 s. "
        "A handler that hangs is ended after 10 s, not 1 min."
    )
    assert advised(ok, {"t": TopicSettings(ttr_ms=10_000)}) == []
    assert advised(ok, None) == [], "there is nothing to compare it with"
    (long,) = advised({"advice": [advice_row(ttr_ms=2000, ttr_verdict="ok")]}, {"t": TopicSettings(ttr_ms=1000)})
    assert long.effect == "At most 4 of 4,000 successful attempts took longer, up to 4 s."


def test_a_lower_bound_never_makes_a_ttr_shorter() -> None:
    cut = {"advice": [advice_row(ttr_ms=10_000, ttr_verdict="cut off", cut_off=80, share_cut_off=0.02)]}
    assert advised(cut, {"t": TopicSettings(ttr_ms=60_000)}) == []
    (one,) = advised(cut, {"t": TopicSettings(ttr_ms=5000)})
    assert (one.today, one.proposed) == ("5 s", "at least 10 s")
    assert one.command == "streamdq topic configure t --ttr 10s"
    assert one.effect.startswith("80 attempts (2.0 %) were cut off or taken over")
    (unknown,) = advised(cut, None)
    assert (unknown.today, unknown.command) == ("not known", ""), "it may be longer"


def test_what_was_cut_off_comes_first_then_retries_then_the_rest() -> None:
    rows = [
        advice_row(topic="slow", ttr_ms=10_000, ttr_verdict="ok"),
        advice_row(topic="vain", **SHORTEN),
        advice_row(topic="cut", ttr_ms=10_000, ttr_verdict="cut off", cut_off=80, share_cut_off=0.02),
    ]
    today = {name: TopicSettings(ttr_ms=5000) for name in ("slow", "vain", "cut")}
    assert [one.topic for one in advised({"advice": rows}, today)] == ["cut", "vain", "slow"]


@pytest.mark.parametrize(
    ("topic", "command"),
    [
        ("it's;rm", ["streamdq", "topic", "configure", "it's;rm", "--retry", "15s"]),
        ("-x", ["streamdq", "topic", "configure", "--retry", "15s", "--", "-x"]),
    ],
)
def test_a_command_is_safe_to_paste(topic: str, command: list[str]) -> None:
    (one,) = advised({"advice": [advice_row(topic=topic, **SHORTEN)]}, None)
    assert shlex.split(one.command) == command


def test_it_stands_before_everything_else(html: str) -> None:
    text = Page(html).text
    assert text.index("Do this") < text.index("Jobs done")
    assert "streamdq topic configure hopeless --retry 15s" in text
    assert "Redis was not asked what is set today" in text
    assert "Nothing: no setting needs a change" in Page(report_of([done("t", AT)])).text


def test_a_retry_step_is_shown_with_what_is_advised(html: str) -> None:
    assert "The 6h step of hopeless never helped, in 550 attempts; the advice is to drop it." in Page(html).text
    few = [e for e in corners() if e.topic == "few"]
    assert "in 15 attempts; these are too few to advise dropping it." in Page(report_of(few)).text


@pytest.mark.parametrize(
    "question", ["Did jobs start on time?", "How much of the error budget is left?", "What should be set instead?",
                 "Which retries help?"]
)  # fmt: skip
def test_where_nothing_else_tells_topics_apart_those_with_the_most_attempts_come_first(question: str) -> None:
    counts = {"a-rare": 2, "b-often": 9, "c-some": 5}
    ends = ("retry", "done")
    log = [
        done(topic, AT + 60_000 * n, id=f"{n // 2}", event=ends[n % 2], attempt=1 + n % 2, step=n % 2,
             error=None if n % 2 else "E")
        for topic, count in counts.items() for n in range(2 * count)
    ]  # fmt: skip
    text = Page(report_of(log)).text
    table = text[text.index("The figures", text.index(question, text.index("What happened"))) :]
    assert sorted(counts, key=table.index) == ["b-often", "c-some", "a-rare"]


def test_the_slowest_topic_has_enough_jobs_for_one_in_twenty() -> None:
    log = [done("often", AT + 1000 * n, id=f"{n}", due=AT + 1000 * n - 50) for n in range(20)]
    log += [done("rare", AT + 90_000, id="r", due=AT)]
    assert "In often, the slowest, one in twenty took longer than" in Page(report_of(log)).text


class Counted(list[dict[str, Any]]):
    """Rows that count how often all of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.looks += 1
        return super().__iter__()


def test_more_topics_are_no_more_looks_at_all_of_them() -> None:
    looks = []
    for topics in (3, 30):
        log = [
            done(f"t{topic}", AT + 60_000 * n, id=f"{n // 2}", event=("retry", "done")[n % 2], attempt=1 + n % 2,
                 step=n % 2, error=None if n % 2 else "E")
            for topic in range(topics) for n in range(4)
        ]  # fmt: skip
        tables = tables_of(log)
        counted = [Counted(tables[name]) for name in ("advice", "retries")]
        advised({"advice": counted[0], "retries": counted[1]}, None)
        retries({"advice": counted[0], "retries": counted[1]})
        looks.append([rows.looks for rows in counted])
    assert looks[0] == looks[1]
