"""The command find: searches a topic's jobs, and acts on those that it has shown."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from .. import terminal
from ..errors import InvalidInput, UnknownGroup
from ..job.job import Job
from ..operations import json_out
from ..operations.find.actions import Acted
from ..operations.find.criteria import FINDABLE
from ..queue import Found, Queue
from ..times.durations import to_ms
from .common import EXIT_INTERRUPTED, EXIT_NO, Durable, Json, OptionalTopic, Topic, commands, open_queue, topics_of
from .input import parse_moment

app = commands()
_SHOWN, _MOST_SHOWN = 20, 100_000

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


@app.command()
def find(
    context: typer.Context,
    topic: OptionalTopic = None,
    state: Annotated[str | None, typer.Option(help=f"One of {', '.join(FINDABLE)}.")] = None,
    group: Annotated[str | None, typer.Option(help="The consumer group that has them in this state.")] = None,
    due_from: Annotated[
        str | None, typer.Option(help="Due at this time or later: a time, now, or counted from now: 10m, -1h.")
    ] = None,
    due_until: Annotated[str | None, typer.Option(help="Due at this time or earlier, written in the same way.")] = None,
    key: Annotated[str | None, typer.Option(help="Only jobs with this key.")] = None,
    id_prefix: Annotated[str | None, typer.Option(help="Only ids that begin with this.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="body.user=7, body.amount>100, error!=timeout; repeatable."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many.")] = None,
    show: Annotated[int, typer.Option(min=0, max=_MOST_SHOWN, help="How many to print: those due first.")] = _SHOWN,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel them.")] = False,
    reschedule: Annotated[str | None, typer.Option(metavar="DELAY", help="Make them due after this long.")] = None,
    reschedule_at: Annotated[str | None, typer.Option(metavar="TIME", help="Make them due at this time.")] = None,
    kick: Annotated[bool, typer.Option("--kick", help="Send them back, if they are dead.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Delete them, if they are dead.")] = False,
    yes: Yes = False,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Search jobs, and act on those found.

    \b
    streamdq find order.close --state delayed --due-until 2h --where body.user=7
    streamdq find order.close --state dead --where 'error=card expired' --kick
    streamdq find order.close --id-prefix test- --cancel --yes
    streamdq find --where body.user=7          # in all topics

    Of one topic, or of all. It prints how many match and which are due first, and asks before it acts. Jobs that have
    changed meanwhile are left alone and counted. Exit code 1: no job matches, or none was acted on.
    """  # noqa: D301 - typer reads the mark
    actions = _actions(cancel, reschedule, reschedule_at, kick, purge, durable)
    due = None if due_from is None and due_until is None else (due_from, due_until)
    wanted: dict[str, Any] = {
        "state": state, "due": due, "group": group, "key": key, "id_prefix": id_prefix, "where": where,
    }  # fmt: skip
    with open_queue(context) as queue:
        with terminal.progress_bar("jobs", shown=not as_json) as bar:
            searches, first = _searched(queue, topics_of(queue, topic), topic is None, wanted, limit, show, bar)
        shown = _summary_of(searches, first)
        count, unreadable = shown["found"], shown["unreadable"]
        if not as_json:
            terminal.console().print(terminal.found_view(first, count, unreadable, topics=topic is None))
        done = count
        for name, act in actions.items() if count else ():
            _ask(name, count, topic or "all topics", yes)
            acted = _act(name, act, searches, quiet=as_json)
            done, shown["acted"] = acted.done, {"action": name, **dataclasses.asdict(acted)}
    if as_json:
        terminal.print_json(shown)
    if not done:
        raise typer.Exit(EXIT_NO)


def _searched(
    queue: Queue, topics: Sequence[str], all_topics: bool, wanted: Mapping[str, Any], limit: int | None, show: int,
    bar: terminal.ProgressBar,
) -> tuple[list[Found], list[Job]]:  # fmt: skip
    """The searches of the topics, to their ends, and the jobs that are due first. Of all topics, those that don't have
    the group are left out.
    """
    searches: list[Found] = []
    first: list[Job] = []
    for topic in topics:
        left = None if limit is None else limit - sum(one.found for one in searches)
        if left == 0:
            break
        found = queue.find(
            topic, **wanted, limit=left, progress=lambda progress: bar.reach(progress.looked, progress.total)
        )
        try:
            first += found.soonest(show) if show else []
            found.count()
        except UnknownGroup:
            if not all_topics:
                raise
        else:
            searches.append(found)
    return searches, sorted(first, key=lambda job: (job.due_ms, job.id))[:show]


def _summary_of(searches: Iterable[Found], first: Iterable[Job]) -> dict[str, Any]:
    """As JSON."""
    sums = {name: sum(getattr(one, name) for one in searches) for name in ("found", "looked", "unreadable")}
    return {**sums, "jobs": [json_out.job_json(job) for job in first]}


def _act(name: str, act: Callable[[Found], Acted], searches: Iterable[Found], *, quiet: bool) -> Acted:
    acted = _sum_of(act(one) for one in searches if one.found)
    if not quiet:
        terminal.say(terminal.acted_text(name, acted))
    return acted


def _sum_of(acted: Iterable[Acted]) -> Acted:
    total = Acted()
    for one in acted:
        for name, number in dataclasses.asdict(one).items():
            setattr(total, name, getattr(total, name) + number)
    return total


@app.command()
def jobs(
    context: typer.Context,
    topic: Topic,
    state: Annotated[str | None, typer.Option(help=f"One of {', '.join(FINDABLE)}.")] = None,
    group: Annotated[str | None, typer.Option(help="The consumer group that has them in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST_SHOWN, help="How many at most.")] = _SHOWN,
    as_json: Json = False,
) -> None:
    """List a topic's jobs.

    Those that are due first, at most --limit of them; find counts all, has more conditions, and acts on what it finds.
    With --state delayed it reads no more than it lists; otherwise it looks at all jobs of the topic.
    """
    with open_queue(context) as queue, terminal.progress_bar("jobs", shown=not as_json) as bar:
        found = queue.find(
            topic, state=state, group=group, progress=lambda progress: bar.reach(progress.looked, progress.total)
        ).soonest(limit)
    if as_json:
        terminal.print_json([json_out.job_json(job) for job in found])
    else:
        what = " ".join(part for part in (state, "jobs in", topic, group and f"for group {group}") if part)
        terminal.console().print(terminal.jobs_view(found, what))


def _actions(
    cancel: bool, delay: str | None, at: str | None, kick: bool, purge: bool, durable: str | None
) -> dict[str, Callable[[Found], Acted]]:
    """By name, what is to be done: one action, or none."""
    moment = None if at is None else parse_moment(at)
    if delay is not None and moment is not None:
        raise InvalidInput("find: pass only one of --reschedule, --reschedule-at")
    if delay is not None:
        to_ms(delay)  # now, because the search may take long
    known: dict[str, tuple[bool, Callable[[Found], Acted]]] = {
        "cancel": (cancel, lambda found: found.cancel(durable=durable)),
        "reschedule": (
            delay is not None or at is not None,
            lambda found: found.reschedule(delay, at=moment, durable=durable),
        ),
        "kick": (kick, Found.kick),
        "purge": (purge, Found.purge),
    }
    actions = {name: act for name, (wanted, act) in known.items() if wanted}
    if len(actions) > 1:
        raise InvalidInput(f"find: pass only one of {', '.join(f'--{name}' for name in actions)}")
    return actions


def _ask(name: str, count: int, topic: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"find: not a terminal; to confirm, pass --yes to {name} {terminal.counted(count, 'job')}")
    if not typer.confirm(f"{name} {terminal.counted(count, 'job')} of {topic}?", err=True):
        raise typer.Exit(EXIT_INTERRUPTED)
