"""The sections about load: throughput, workers, anomalies and the forecast."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from streamdq.link.consumers import begun_ms

from ..measures import DEFAULT_TZ
from .charts import Axis, Series, bars, matrix, stacked
from .parts import (
    OTHERS,
    Colours,
    Figure,
    Grid,
    Section,
    TableRow,
    Tables,
    day_of,
    figure,
    grid,
    grouped,
    has_groups,
    in_steps,
    subject,
    total,
)
from .svg import Svg
from .words import counted, day, hour, number, percent, short, size, span


def throughput(tables: Tables, colours: Colours) -> Section:
    section = Section(
        "throughput", "How much was done?", "Attempts that ended as done, and what else happened to jobs."
    )
    rows = tables["throughput"]
    if not rows:
        section.lacking = "Nothing happened in this period."
        return section
    done, days = total(rows, "done"), len({row["hour"].astimezone(UTC).date() for row in rows})
    busiest = max(grouped(rows, "hour").items(), key=lambda item: total(item[1], "done"))
    daily = f", {number(done / days)} a day" if days > 1 else ""
    section.answer = (
        f"{number(done)} done{daily}; the busiest hour was {hour(busiest[0])} with {number(total(busiest[1], 'done'))}."
        if done
        else "No job was done; what else happened to them is in the table."
    )
    section.calm, section.brief = not done, section.answer
    section.figures = _by_time(rows, colours) if done else []
    groups = has_groups(rows)
    by_subject = grouped(rows, "topic", "group")
    ranked = sorted(by_subject.values(), key=lambda own: -total(own, "done"))
    names = ("done", "retry", "snoozed", "dead", "released", "reclaimed", "cancelled", "expired", "kicked")
    section.grids = [
        grid(
            [
                "Topic", "Done", "Tried again", "Put off", "Given up", "Handed back", "Taken over", "Cancelled",
                "Expired", "Kicked", "Most a minute", "Bodies",
            ],
            [
                [
                    subject(own[0], groups), *(number(total(own, name)) for name in names),
                    number(max(row["peak_done_per_minute"] for row in own)), size(total(own, "done_bytes")),
                ]
                for own in ranked
            ],
        )
    ]  # fmt: skip
    return section


def _series(rows: Sequence[TableRow], times: Sequence[datetime], column: str, colours: Colours) -> list[Series]:
    """Sums by the rows' `at`, for each topic with a colour, and for all others together."""
    by_style = grouped(({**row, "style": colours.style(row["topic"])} for row in rows), "style")
    series = []
    for style, own in sorted(by_style.items()):
        sums = {at: _sum(of_time, column) for at, of_time in grouped(own, "at").items()}
        name = "all others" if style == OTHERS else str(own[0]["topic"])
        series.append(Series(name, [sums.get(at, 0.0) for at in times], style))
    return series


def _sum(rows: Sequence[TableRow], column: str) -> float:
    return float(sum(row[column] or 0 for row in rows))


def _by_time(rows: Sequence[TableRow], colours: Colours) -> list[Figure]:
    """None of a single hour."""
    steps = in_steps(rows)
    if len(steps.times) < 2:
        return []
    series = _series(steps.rows, steps.times, "done", colours)
    all_done = [sum(one.values[i] for one in series) for i in range(len(steps.times))]
    peak = max(range(len(steps.times)), key=all_done.__getitem__)
    title = f"Done per {steps.unit}, by topic"
    most, least = number(all_done[peak]), number(min(all_done))
    text = f"The most in a {steps.unit}: {most}, {steps.names[peak]}; the least: {least}."
    axis = Axis(f"done per {steps.unit}")
    return [figure(title, lambda width: stacked(width, title, text, axis, steps.names, series))]


def workers(tables: Tables) -> Section:
    section = Section(
        "workers",
        "How busy were the workers?",
        "Time in handlers as a share of the slots that a consumer was seen to use, and how even the work was.",
    )
    rows = tables["workers"]
    if not rows:
        section.lacking = "No attempt with a start time ended in this period."
        return section
    peak = max(rows, key=lambda row: row["utilisation"])
    hosts = sorted(_by_host(rows).items(), key=lambda item: -total(item[1], "busy_ms"))
    many = counted(len(hosts), "host")
    processes = len({row["consumer"] for row in rows})
    named = f"{number(processes)} process{'' if processes == 1 else 'es'}"
    use = f"busy {percent(_mean_use(rows))} of the time on average, at most {percent(peak['utilisation'])}"
    section.answer = f"{named} on {many}, {use} ({hour(peak['hour'])}).{_usual_skew(rows)}"
    section.brief = f"{many}, busy {percent(_mean_use(rows))} on average, at most {percent(peak['utilisation'])}."
    section.figures = [_use_by_host(hosts)]
    section.grids = [
        grid(
            ["Host", "Processes", "Attempts", "In handlers", "Slots of each", "Mean use", "Use in the busiest hour"],
            [
                [
                    name, number(len({row["consumer"] for row in own})), number(total(own, "ended")),
                    span(total(own, "busy_ms")), number(max(row["slots"] for row in own)), percent(_mean_use(own)),
                    percent(max(row["utilisation"] for row in own)),
                ]
                for name, own in hosts
            ],
        )
    ]  # fmt: skip
    section.notes = ["Slots: the most attempts that a process ever ran at once. A worker may be allowed more."]
    return section


def _by_host(rows: Sequence[TableRow]) -> dict[str, list[TableRow]]:
    """A process that starts again has another name, and the same host."""
    return grouped(({**row, "host": begun_ms(str(row["consumer"]))[0]} for row in rows), "host")


def _mean_use(rows: Sequence[TableRow]) -> float:
    return _sum(rows, "utilisation") / len(rows)


def _usual_skew(rows: Sequence[TableRow]) -> str:
    """How unevenly work was spread in a typical hour, in words; "" if there is nothing to compare."""
    skews = sorted(row["skew"] for row in rows if row["skew"] is not None)
    return f" In a usual hour the busiest had {skews[len(skews) // 2]:.2f} × the mean." if skews else ""


def _use_by_host(hosts: Sequence[tuple[str, Sequence[TableRow]]]) -> Figure:
    shown = [(name, _mean_use(own) * 100, percent(_mean_use(own))) for name, own in hosts[:12]]
    shown.sort(key=lambda bar: -bar[1])
    title = "Mean use of the slots on each host" + (" (the 12 busiest)" if len(hosts) > len(shown) else "")
    text = "; ".join(f"{label}: {value}" for label, _, value in shown)
    axis = Axis("busy, % of slot time in the hours it worked", lambda value: f"{value:g} %")
    return figure(title, lambda width: bars(width, title, text, axis, shown))


_WORDS = {
    ("done", True): "more done than expected",
    ("done", False): "less done than expected",
    ("failed", True): "more failures than usual",
    ("late", True): "more late starts than usual",
}


def ranked(tables: Tables) -> list[TableRow]:
    """The incidents, the largest first."""
    return sorted(tables["incidents"], key=lambda row: (-row["size"], str(row["topic"]), row["first_hour"]))


def in_words(incident: TableRow) -> str:
    """An incident in words. Jobs that were done at another time are as many more as less."""
    if incident["measure"] == "done" and abs(incident["value"] - incident["usual"]) < incident["size"] / 2:
        return "done at other times than expected"
    return _WORDS[incident["measure"], incident["score"] > 0]


def anomalies(tables: Tables, tz: str) -> Section:
    section = Section(
        "anomalies",
        "Which hours were unusual?",
        "Hours unlike what the same hours of earlier weeks and the last days made one expect: in jobs done, and in the "
        "shares of first attempts that failed and of attempts that started late.",
    )
    judged = [row for row in tables["anomalies"] if row["score"] is not None]
    if not judged:
        section.lacking = "This needs three complete weeks before the hour that is judged; the data has fewer."
        return section
    found = ranked(tables)
    hours = len({(row["topic"], row["hour"]) for row in judged if row["anomaly"]})
    of = len({(row["topic"], row["hour"]) for row in judged})
    together = f", in {counted(len(found), 'incident')}" if found else ""
    section.answer = f"{number(hours)} of {number(of)} topic hours{together}."
    section.calm = not found
    section.brief = section.answer
    if hours:
        section.figures = [_calendar(judged)]
    section.grids = [
        grid(
            ["Topic", "What", "From", "Hours", "Seen", "Expected", "Difference", "Strongest score"],
            [
                [
                    str(row["topic"]), in_words(row),
                    hour(row["first_hour"]), number(row["hours"]), number(row["value"]),
                    number(round(row["usual"], 1)), number(round(row["size"])), f"{row['score']:+.1f}",
                ]
                for row in found
            ],
            texts=3,
            most=15,
        )
    ]  # fmt: skip
    section.notes = [
        "Score: standard deviations from what was expected, of 1 to 12 hours.",
        "Unusual: beyond ± 4; shares beyond 3.7, over several hours 3.5, or 2.9 at 2.5 times the usual.",
        "Consecutive unusual hours are one incident; the largest difference comes first.",
    ]
    if tz != DEFAULT_TZ:
        section.notes.append(f"Hours are compared by the clocks of {tz}.")
    return section


def _calendar(judged: Sequence[TableRow]) -> Figure:
    dated = [{**row, "day": day_of(row["hour"])} for row in judged]
    days = sorted({row["day"] for row in dated})[-HEAT_DAYS:]
    counts = {
        key: float(len({row["hour"] for row in own if row["anomaly"]}))
        for key, own in grouped(dated, "topic", "day").items()
    }
    hours = {
        topic: sum(counts[topic, at] for at in grouped(own, "day")) for topic, own in grouped(dated, "topic").items()
    }
    topics = sorted(hours, key=lambda topic: (-hours[topic], topic))[:MOST_DRAWN]
    cells = [[counts.get((topic, date)) for date in days] for topic in topics]
    title = "Unusual hours, by topic and day"
    worst = max(counts, key=counts.__getitem__)
    text = f"The most on one day: {worst[0]}, {day(worst[1])}, {number(counts[worst])} hours."

    def draw(width: int) -> Svg:
        return matrix(
            width, title, text, topics, [str(date.day) for date in days], cells, show=lambda v: f"{v:.0f} h",
            kind="hot", across=f"{day(days[0])} to {day(days[-1])}",
        )  # fmt: skip

    return figure(title, draw)


HEAT_DAYS = 28
MOST_DRAWN = 20


def forecast(tables: Tables, tz: str, colours: Colours) -> Section:
    section = Section(
        "forecast",
        "How much is coming?",
        "Attempts expected in the next hours, from the same hour of earlier weeks, and jobs waiting in Redis.",
    )
    rows = sorted(tables["forecast"], key=lambda row: row["hour"])
    known = [row for row in rows if row["load"] is not None]
    if not known:
        section.lacking = (
            "This needs two complete weeks of history; the data has fewer, and Redis was not asked for waiting jobs."
        )
        return section
    by_hour = {at: _sum(own, "load") for at, own in grouped(rows, "hour").items()}
    peak = max(by_hour, key=by_hour.__getitem__)
    section.answer = (
        f"About {number(round(_sum(known, 'load')))} attempts in {len(by_hour)} hours, "
        f"the most from {hour(peak)} on: {number(round(by_hour[peak]))}."
    )
    asked = any(row["waiting"] is not None for row in rows)
    section.calm, section.brief = False, section.answer
    section.span = f"{len(by_hour)} hours from {hour(min(by_hour))}"
    section.figures = [_expected_by_hour(rows, section.answer, asked, colours)]
    names = ["Topic", "Expected", "Low", "High", "Busiest hour", "Waiting now"]
    section.grids = [grid(names, _by_topic(rows))]
    accuracy = sorted(tables["forecast_accuracy"], key=lambda row: -row["attempts"])
    if accuracy:
        section.grids.append(_accuracy(accuracy))
    section.notes = [
        "Expected follows the weeks seen, the level of the last seven days, and earlier month starts and holidays.",
        "Low and high are sums over hours: of each hour, what comes lies between them in 80 % of the cases.",
    ]
    if accuracy:
        section.notes.insert(0, _how_good(accuracy))
        section.notes.append(
            "Error: all differences over all that came, of the last 14 days, each forecast from what was known when it "
            "began; beside that of the simplest forecast, the same hour of the week before."
        )
    if tz != DEFAULT_TZ:
        section.notes.append(f"Hours are compared by the clocks of {tz}.")
    if not asked:
        section.notes.append("Redis was not asked for waiting jobs.")
    return section


def _how_good(accuracy: Sequence[TableRow]) -> str:
    came = total(accuracy, "attempts")
    wrong = sum((row["error"] or 0.0) * row["attempts"] for row in accuracy)
    covered = sum(row["covered"] * row["hours"] for row in accuracy) / total(accuracy, "hours")
    error = f"off by {percent(wrong / came)}" if came else "not needed"
    return (
        f"In the last 14 days such forecasts, hour by hour and topic by topic, were {error}, and {percent(covered)} of "
        "the hours lay within their band."
    )


def _accuracy(accuracy: Sequence[TableRow]) -> Grid:
    return grid(
        ["Topic", "Hours tested", "Error", "Error of last week's hour", "Within the band"],
        [
            [
                str(row["topic"]), number(row["hours"]), percent(row["error"]), percent(row["error_last_week"]),
                percent(row["covered"]),
            ]
            for row in accuracy
        ],
    )  # fmt: skip


def _expected_by_hour(rows: Sequence[TableRow], text: str, asked: bool, colours: Colours) -> Figure:
    """`asked`: what waits in Redis is known."""
    by_hour = grouped(rows, "hour")
    hours = sorted(by_hour)
    series = _series([{**row, "at": row["hour"]} for row in rows], hours, "expected", colours)
    labels = [f"{at:%H:%M}" for at in hours]
    title = "Expected attempts per hour"
    axis = Axis("attempts per hour")
    line = ("waiting in Redis now", [float(total(by_hour[at], "waiting")) for at in hours]) if asked else None
    return figure(title, lambda width: stacked(width, title, text, axis, labels, series, line=line))


def _by_topic(rows: Sequence[TableRow]) -> list[list[str]]:
    table = []
    for own in sorted(grouped(rows, "topic").values(), key=lambda own: -_sum(own, "load")):
        peak = max(own, key=lambda row: row["load"] or 0)
        busiest = f"{peak['hour']:%H:%M} ({short(peak['load'])})" if peak["load"] else "–"
        sums = [_sum_or_none(own, name) for name in ("expected", "low", "high")]
        waiting = _sum_or_none(own, "waiting")
        table.append([str(own[0]["topic"]), *map(number, sums), busiest, number(waiting)])
    return table


def _sum_or_none(rows: Sequence[TableRow], column: str) -> float | None:
    return _sum(rows, column) if any(row[column] is not None for row in rows) else None
