"""The sections about failures: retries, dead letters, lost and repeated work, and better settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamdq.job.retry import RetrySchedule

from .charts import Axis, bars, matrix
from .parts import (
    Colours,
    Figure,
    Section,
    TableRow,
    Tables,
    figure,
    grid,
    grouped,
    has_groups,
    job_cell,
    subject,
    total,
)
from .svg import Svg
from .todo import Settings, advised
from .words import counted, hour, number, percent, span

MOST_NAMES = 20
_REASONS = {
    "exhausted": "retry steps used up",
    "buried": "handler gave it up",
    "invalid": "body does not fit the handler",
    "crashed": "consumers died on it",
}


def _most_first(queue: tuple[tuple[str, str | None], list[TableRow]]) -> tuple[float, str, str]:
    """By the attempts, then by name."""
    (topic, group), rows = queue
    return -total(rows, "attempts"), topic, group or ""


def _wait(ms: float | None) -> str:
    return "?" if ms is None else str(RetrySchedule((round(ms),)))


def retries(tables: Tables) -> Section:
    section = Section(
        "retries",
        "Which retries help?",
        "Of the attempts at each step of the retry schedule, which share succeeded?",
    )
    queues = sorted(grouped(tables["retries"], "topic", "group").items(), key=_most_first)
    rows = [row for _, own in queues for row in sorted(own, key=lambda row: row["step"])]
    again = [row for row in rows if row["step"] > 0 and row["attempts"]]
    if not again:
        section.lacking = "No retry of a job ended in this period."
        return section
    advice = {(row["topic"], row["group"]): row for row in tables["advice"]}
    first = [row for row in rows if row["step"] == 0]
    failed = percent(1 - total(first, "done") / max(1, total(first, "attempts")))
    section.brief = f"{failed} of first attempts failed; retries finished {number(total(again, 'done'))} jobs."
    section.answer = (
        f"{failed} of first attempts failed; retries "
        f"then finished {number(total(again, 'done'))} jobs with {number(total(again, 'attempts'))} attempts."
        f"{_worst_step(again, advice)}"
    )
    groups = has_groups(rows)
    section.figures = [_funnel(again, groups)]
    section.grids = [
        grid(
            ["Topic", "Step", "Wait", "Attempts", "Done", "Failed", "Success", "Of all done", "Done so far", "Advice"],
            [
                [
                    subject(row, groups), number(row["step"]), _wait(row["wait_ms"]) if row["step"] else "–",
                    number(row["attempts"]), number(row["done"]), number(row["failed"]), percent(row["success_rate"]),
                    percent(row["share_of_done"]), percent(row["done_so_far"]),
                    _ADVICE[_of_step(row, advice)],
                ]
                for row in rows
            ],
            most=120,
        )
    ]  # fmt: skip
    section.notes = ["Step 0 is the first attempt. The wait is the median of what was observed."]
    return section


_ADVICE = {"": "–", "keep": "keep", "drop": "drop", "too few": "too few to say"}
_WHY = {
    "": ".",
    "keep": "; it stays, as too few of them were seen, or a later step helps.",
    "drop": "; the advice is to drop it.",
    "too few": "; these are too few to advise dropping it.",
}


_ByQueue = Mapping[tuple[str, str | None], TableRow]


def _of_step(row: TableRow, advice: _ByQueue) -> str:
    """What the advice says about this step; "" for first attempts, and where there is none."""
    own = advice.get((row["topic"], row["group"]))
    if not own or not row["step"] or own["keep_steps"] is None:
        return ""
    if row["step"] > own["keep_steps"]:
        return "drop"
    is_last = row["step"] == len(own["waits_ms"])
    return "too few" if is_last and own["retry_verdict"] == "too few" else "keep"


def _worst_step(again: Sequence[TableRow], advice: _ByQueue) -> str:
    """The step that was tried most and never helped, in words, and what is advised; "" if each helped at least once."""
    useless = [row for row in again if row["done"] == 0]
    if not useless:
        return ""
    worst = max(useless, key=lambda row: (row["attempts"], row["wait_ms"] or 0))
    step, tries = _wait(worst["wait_ms"]), number(worst["attempts"])
    return f" The {step} step of {worst['topic']} never helped, in {tries} attempts{_WHY[_of_step(worst, advice)]}"


def _whole_percent(value: float) -> str:
    return f"{value * 100:.0f}%" if value == 0 or value >= 0.01 else "<1%"


def _funnel(again: Sequence[TableRow], groups: bool) -> Figure:
    steps = range(1, max(row["step"] for row in again) + 1)
    found = {(subject(row, groups), row["step"]): row["success_rate"] for row in again}
    tries = grouped(({**row, "name": subject(row, groups)} for row in again), "name")
    names = sorted(sorted(tries, key=lambda name: -total(tries[name], "attempts"))[:MOST_NAMES])
    cells = [[found.get((name, step)) for step in steps] for name in names]
    title = "Success of the attempts at each retry step"
    text = "; ".join(
        f"{name}: " + ", ".join(f"step {s} {percent(found[name, s])}" for s in steps if (name, s) in found)
        for name in names
    )

    def draw(width: int) -> Svg:
        return matrix(
            width, title, text, names, [str(step) for step in steps], cells, show=_whole_percent, kind="cool",
            written=True, top=1.0, across="retry step",
        )  # fmt: skip

    return figure(title, draw)


def dead_letters(tables: Tables, page: str, colours: Colours) -> Section:
    section = Section(
        "dead", "Why were jobs given up?", "Dead letters by reason and error, so that the cause can be fixed."
    )
    rows = sorted(tables["dead_letters"], key=lambda row: (-left(row), -row["dead"]))
    if not rows:
        section.lacking = "None: no job was given up in this period."
        return section
    given_up, kicked = total(rows, "dead"), total(rows, "kicked")
    sent_back = f" {number(given_up)} were given up, and {number(kicked)} of these sent back." if kicked else ""
    section.brief = f"{number(given_up)} given up, {number(given_up - kicked)} of them not sent back."
    section.calm = not _more_than_before(tables["changes"])
    causes = [(key, sum(map(left, own))) for key, own in grouped(rows, "topic", "reason", "error").items()]
    causes = sorted((cause for cause in causes if cause[1]), key=lambda cause: -cause[1])
    if causes:
        section.answer = _largest_cause(*causes[0], given_up - kicked) + sent_back
        section.figures = [_causes(causes, colours)]
    else:
        section.answer = f"Nothing is left: {number(given_up)} given up, and all sent back."
    groups = has_groups(tables["throughput"])
    section.grids = [
        grid(
            ["Topic", "Reason", "Error", "The last one", "Given up", "Sent back", "Left", "Share", "Last"],
            [
                [
                    subject(row, groups), _REASONS.get(row["reason"], row["reason"] or "–"), row["error"] or "–",
                    job_cell(row["topic"], row["last_id"], page), number(row["dead"]), number(row["kicked"]),
                    number(left(row)), percent(row["share"]), hour(row["last"]),
                ]
                for row in rows
            ],
            texts=4,
        )
    ]  # fmt: skip
    section.notes = [
        "Left: not sent back since. Letters that were purged are among them, as the history does not tell of that.",
        "Share: of all that were given up.",
    ]
    return section


def _more_than_before(changes: Sequence[TableRow]) -> bool:
    return any(row["measure"] == "dead" and row["verdict"] == "worse" for row in changes)


def left(row: TableRow) -> int:
    """How many of these letters were not sent back."""
    return int(row["dead"] - row["kicked"])


def _causes(causes: Sequence[tuple[tuple[str, str, str], int]], colours: Colours) -> Figure:
    shown = [(f"{t} · {e or r}", float(n), number(n)) for (t, r, e), n in causes[:10]]
    title = "Dead letters by topic and error"
    text = "; ".join(f"{label}: {value}" for label, _, value in shown)
    axis = Axis("jobs given up and not sent back")
    styles = [colours.style(topic) for (topic, _, _), _ in causes[:10]]
    return figure(title, lambda width: bars(width, title, text, axis, shown, styles=styles))


def _largest_cause(cause: tuple[str, str, str], jobs: int, dead: int) -> str:
    topic, reason, error = cause
    why = _REASONS.get(reason, reason or "unknown") + (f" ({error})" if error else "")
    return f"{number(dead)} jobs. The largest cause, {percent(jobs / dead)} of them: {topic}, {why}."


def duplicates(tables: Tables, page: str, colours: Colours) -> Section:
    section = Section(
        "duplicates",
        "Was work lost or done twice?",
        "Attempts taken over because their consumer was gone or too slow, and jobs that ended as done more than once.",
    )
    rows = sorted(tables["duplicates"], key=lambda row: -row["reclaimed"])
    if not rows:
        section.lacking = "No job ended in this period."
        return section
    again, reclaimed = total(rows, "done_again"), total(rows, "reclaimed")
    started = total(rows, "attempts") + reclaimed
    section.answer = (
        f"{number(again) + ' times a job' if again else 'No job'} ended as done twice. {number(reclaimed)} attempts"
        f"{f', {percent(reclaimed / started)} of all,' if reclaimed else ''} were taken over."
    )
    section.calm = not again
    twice = f"{number(again)} done twice" if again else "Nothing done twice"
    section.brief = f"{twice}; {number(reclaimed)} attempts taken over."
    groups = has_groups(rows)
    section.figures = _taken_over(rows, groups, colours)
    section.grids = [
        grid(
            [
                "Topic", "Jobs", "Attempts", "Done twice", "Taken over", "Of jobs", "Handed back", "Most of one job",
                "That job",
            ],
            [
                [
                    subject(row, groups), number(row["jobs"]), number(row["attempts"]), number(row["done_again"]),
                    number(row["reclaimed"]), number(row["jobs_reclaimed"]), number(row["released"]),
                    number(row["most_reclaimed"]),
                    job_cell(row["topic"], row["most_reclaimed_id"], page) if row["most_reclaimed_id"] else "–",
                ]
                for row in rows
            ],
        )
    ]  # fmt: skip
    section.notes = [
        "Handed back: by a worker that stopped, or that was lost before it started the job; this uses up no attempt."
    ]
    return section


def _taken_over(rows: Sequence[TableRow], groups: bool, colours: Colours) -> list[Figure]:
    """Nothing if none was."""
    ranked = sorted((row for row in rows if row["share_reclaimed"]), key=lambda row: -row["share_reclaimed"])[:12]
    if not ranked:
        return []
    of_10_000 = [row["share_reclaimed"] * 10_000 for row in ranked]
    shown = [(subject(row, groups), value, f"{value:,.1f}") for row, value in zip(ranked, of_10_000, strict=True)]
    title = "Attempts taken over, by topic"
    text = "; ".join(f"{label}: {value} of 10,000" for label, _, value in shown)
    axis, styles = Axis("of 10,000 attempts"), [colours.style(row["topic"]) for row in ranked]
    return [figure(title, lambda width: bars(width, title, text, axis, shown, styles=styles))]


_TTR = {
    "ok": "",
    "too few": "too few attempts to say",
    "cut off": "a lower bound: attempts were cut off",
}
_RETRY = {
    "ok": "keep",
    "shorten": "the last {} don't help",
    "too few": "too few attempts at the last step to say",
    "no retries": "no retries seen",
}


def advice(tables: Tables, settings: Settings | None) -> Section:
    section = Section(
        "advice",
        "What should be set instead?",
        "A time to run and a retry schedule for each topic, derived from its attempts.",
    )
    rows = sorted(tables["advice"], key=lambda row: (-row["done"], row["topic"], row["group"] or ""))
    if not rows:
        section.lacking = "No attempt ended in this period."
        return section
    short = [row for row in rows if row["retry_verdict"] == "shorten"]
    said = [row for row in rows if row["ttr_ms"] is not None]
    section.answer = (
        f"A TTR can be recommended for {number(len(said))} of {number(len(rows))}; "
        f"{'one retry schedule' if len(short) == 1 else f'{len(short)} retry schedules'} can be shorter."
    )
    groups = has_groups(rows)
    changes = advised(tables, settings)
    section.brief = f"{number(len(changes)) if changes else 'Nothing'} in {counted(len(rows), 'queue')}."
    section.grids = [
        grid(
            ["Topic", "Setting", "Command", "Today", "Proposed"],
            [[one.topic, one.setting, one.command or "–", one.today, one.proposed] for one in changes],
            texts=3,
        ),
        grid(
            [
                "Topic", "Retry steps worth keeping", "Verdict", "TTR", "Runs: p99.9", "Longest", "Done", "Cut off",
                "Retries seen",
            ],
            [
                [
                    subject(row, groups), _kept(row), _verdict(row), span(row["ttr_ms"]), span(row["p999_ms"]),
                    span(row["max_ms"]), number(row["done"]), percent(row["share_cut_off"]), number(row["retried"]),
                ]
                for row in rows
            ],
            texts=3,
        ),
    ]  # fmt: skip
    section.notes = [
        "TTR: twice the 99.9th percentile of successful runs, and at least 10 s more than it; from 1,000 of them on.",
        "Retries: steps at the end can go if it is 95 % certain that fewer than 1 in 100 of their attempts succeed.",
    ]
    return section


def _kept(row: TableRow) -> str:
    waits = row["waits_ms"] or []
    return " ".join(_wait(wait) for wait in waits[: row["keep_steps"] or 0]) or "–"


def _verdict(row: TableRow) -> str:
    dropped = len(row["waits_ms"] or []) - (row["keep_steps"] or 0)
    retry = _RETRY[row["retry_verdict"]].format(dropped)
    ttr = _TTR[row["ttr_verdict"]]
    return f"TTR: {ttr}; retries: {retry}" if ttr else f"Retries: {retry}"
