"""Commands on schedules."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from .. import terminal
from ..operations import json_out
from ..operations.schedules.define import PutSchedule, planned, preview_schedule, put_schedule
from ..operations.schedules.read import Schedule
from ..options import OF_SCHEDULE
from ..queue import carry_out, store_of
from .common import (
    Expire,
    Json,
    OptionalTopic,
    PriorityChoice,
    Retry,
    Topic,
    Ttr,
    WithId,
    answer,
    commands,
    open_queue,
    option,
)
from .input import parse_json, parse_moment

app = commands()
SCHEDULE = commands(help="List, add and change schedules of recurring jobs.")
app.add_typer(SCHEDULE, name="schedule")

ScheduleId = Annotated[str, typer.Argument(help="The schedule's id", show_default=False)]
DEFAULT_ID = "default"


class OverlapChoice(StrEnum):
    """What happens to an occurrence if the job of the last one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"


class DstChoice(StrEnum):
    """How often a local time runs that comes twice."""

    ONCE = "once"
    BOTH = "both"


@SCHEDULE.command("list")
def list_schedules(context: typer.Context, topic: OptionalTopic = None, as_json: Json = False) -> None:
    """List schedules.

    Shows the next occurrence, and how many became jobs, were skipped (the job before had not ended) or were missed (no
    mover ran in time).
    """
    with open_queue(context) as queue:
        found = queue.schedules(topic)
    if as_json:
        terminal.print_json([json_out.schedule_json(one) for one in found])
    else:
        terminal.console().print(terminal.schedules_view(found))


@SCHEDULE.command(cls=WithId)
def show(context: typer.Context, topic: Topic, id: ScheduleId = DEFAULT_ID, as_json: Json = False) -> None:
    """Show a schedule and its next five times.

    In its zone and in UTC. Exit code 1: no such schedule.
    """
    with open_queue(context) as queue:
        found = queue.get_schedule(topic, id)
    if as_json:
        terminal.print_json(json_out.schedule_json(found))
    else:
        terminal.console().print(terminal.schedule_view(found))


@SCHEDULE.command()
def add(
    context: typer.Context,
    topic: Topic,
    body: Annotated[
        str | None,
        typer.Argument(help="The body of its jobs, as JSON; {due} in it is the occurrence's time", show_default=False),
    ] = None,
    id: Annotated[str, typer.Option(help="The schedule's id.")] = DEFAULT_ID,
    cron: Annotated[str | None, option("cron", OF_SCHEDULE, "Such as '0 9 * * 1-5'.")] = None,
    every: Annotated[str | None, option("every", OF_SCHEDULE, "Such as 10m.")] = None,
    tz: Annotated[str, option("tz", OF_SCHEDULE, "Such as Europe/Paris.")] = "UTC",
    dst: Annotated[DstChoice, option("dst", OF_SCHEDULE)] = DstChoice.ONCE,
    jitter: Annotated[str | None, option("jitter", OF_SCHEDULE)] = None,
    start: Annotated[str | None, option("start", OF_SCHEDULE)] = None,
    until: Annotated[str | None, option("until", OF_SCHEDULE)] = None,
    overlap: Annotated[OverlapChoice, option("overlap", OF_SCHEDULE)] = OverlapChoice.ALLOW,
    catch_up: Annotated[str, option("catch_up", OF_SCHEDULE)] = "last",
    ttr: Ttr = None,
    retry: Retry = None,
    url: Annotated[str | None, option("url", OF_SCHEDULE)] = None,
    expire: Expire = None,
    version: Annotated[int, option("version", OF_SCHEDULE)] = 1,
    priority: Annotated[PriorityChoice | None, option("priority", OF_SCHEDULE)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show when it would run.")] = False,
    as_json: Json = False,
) -> None:
    """Add a schedule, or change it.

    \b
    streamdq schedule add report.send '{"for": "{due}"}' --id acme --cron '0 9 * * 1-5' --tz Europe/Paris
    streamdq schedule add refund.check --id refunds --every 10m --jitter 30s --overlap skip
    streamdq schedule add report.send --cron '0 9 * * MON#1' --dry-run

    First it shows the next five times, in the schedule's zone and in UTC; for an existing schedule, also the times
    before the change. Options that you leave out get their defaults, even if the schedule had other values. A change
    holds from the next occurrence on.
    """  # noqa: D301 - typer reads the mark
    definition, new = planned(
        None if body is None else parse_json(body, "body"),
        {
            "cron": cron, "every": every, "tz": tz, "dst": dst.value, "jitter": jitter,
            "start": None if start is None else parse_moment(start, "start"),
            "until": None if until is None else parse_moment(until, "until"), "overlap": overlap.value,
            "catch_up": catch_up, "ttr": ttr, "retry": retry, "url": url, "expire": expire, "version": version,
            "priority": None if priority is None else priority.value,
        },
    )  # fmt: skip
    with open_queue(context) as queue:
        store = store_of(queue)
        put = carry_out(queue, preview_schedule(store, topic, id, definition, new))
        if not as_json:
            terminal.console().print(terminal.put_view(put))
        if not dry_run:
            put = carry_out(queue, put_schedule(store, topic, id, definition, new))
    answer(as_json, _put_json(put, dry_run), _put_text(put, dry_run))


def _put_json(put: PutSchedule, dry_run: bool) -> dict[str, Any]:
    return {
        "result": "dry-run" if dry_run else _result(put),
        "before": put.before and json_out.schedule_json(put.before),
        "schedule": json_out.schedule_json(put.after),
    }


def _result(put: PutSchedule) -> str:
    return "added" if put.before is None else "unchanged" if put.before == put.after else "changed"


def _put_text(put: PutSchedule, dry_run: bool) -> str:
    result = _result(put)
    return f"nothing was written; it would be {result}" if dry_run else result


@SCHEDULE.command(cls=WithId)
def pause(context: typer.Context, topic: Topic, id: ScheduleId = DEFAULT_ID, as_json: Json = False) -> None:
    """Pause a schedule.

    What comes meanwhile neither runs nor counts as missed. Exit code 1: no such schedule.
    """
    with open_queue(context) as queue:
        _tell(queue.pause_schedule(topic, id), as_json, "is paused")


@SCHEDULE.command(cls=WithId)
def resume(context: typer.Context, topic: Topic, id: ScheduleId = DEFAULT_ID, as_json: Json = False) -> None:
    """Resume a paused schedule.

    It runs again from its next occurrence on. Exit code 1: no such schedule.
    """
    with open_queue(context) as queue:
        _tell(queue.resume_schedule(topic, id), as_json, "is resumed")


def _tell(schedule: Schedule, as_json: bool, became: str) -> None:
    answer(as_json, json_out.schedule_json(schedule), f"{schedule.topic} / {schedule.id} {became}")


@SCHEDULE.command(cls=WithId)
def trigger(context: typer.Context, topic: Topic, id: ScheduleId = DEFAULT_ID, as_json: Json = False) -> None:
    """Enqueue a job of a schedule now.

    Besides its occurrences, and even if it is paused. Exit code 1: no such schedule.
    """
    with open_queue(context) as queue:
        job = queue.trigger(topic, id)
    answer(as_json, json_out.job_json(job), f"{job.topic} / {job.id}, due {terminal.time_text(job.due_ms)}")


@SCHEDULE.command(cls=WithId)
def remove(context: typer.Context, topic: Topic, id: ScheduleId = DEFAULT_ID, as_json: Json = False) -> None:
    """Remove a schedule.

    Jobs that it has enqueued stay. Exit code 1: no such schedule.
    """
    with open_queue(context) as queue:
        yes = queue.unschedule(topic, id)
    answer(as_json, {"removed": yes}, "removed" if yes else f"topic {topic!r} has no schedule {id!r}", yes=yes)


@SCHEDULE.command(cls=WithId)
def backfill(
    context: typer.Context,
    topic: Topic,
    start: Annotated[str, typer.Option(help="The first moment: 2030-01-31T09:00:00+08:00.", show_default=False)],
    end: Annotated[str, typer.Option(help="The first moment after it.", show_default=False)],
    id: ScheduleId = DEFAULT_ID,
    as_json: Json = False,
) -> None:
    """Enqueue the jobs of a past time.

    Of each occurrence from --start until before --end one job, due at once, in their order. Those that are in the queue
    stay as they are; those that have ended run again. At most 100,000. Exit code 1: no such schedule.
    """
    with open_queue(context) as queue:
        count = queue.backfill(topic, id, parse_moment(start, "start"), parse_moment(end, "end"))
    answer(as_json, {"enqueued": count}, f"{terminal.counted(count, 'job')} enqueued")
