"""Commands on topics and the whole queue: stats, settings, audit, doctor."""

from __future__ import annotations

import dataclasses
import sys
import time
from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated, Literal

import typer
from rich.live import Live

from .. import terminal
from ..config import DEFAULT_GROUP, Settings
from ..errors import InvalidInput
from ..link.opening import check_namespace
from ..operations import json_out
from ..operations.checks.acl import more_rights, rights
from ..operations.keys.busiest import By
from ..options import OF_TOPIC
from ..process.logs import visible
from ..queue import Queue
from ..times.durations import to_ms
from .common import (
    EXIT_NO,
    GroupOption,
    Json,
    OptionalTopic,
    Retry,
    Topic,
    Ttr,
    answer,
    commands,
    open_queue,
    option,
    topics_of,
)

app = commands()
TOPIC = commands(help="Create, configure, pause, list and delete topics.")
app.add_typer(TOPIC, name="topic")


class KeyOrder(StrEnum):
    """Whether jobs of a key are kept in order."""

    YES = "yes"
    PASS = "pass"  # noqa: S105 - no password
    NO = "no"


_KEY_ORDERS: dict[KeyOrder, bool | Literal["pass"]] = {KeyOrder.YES: True, KeyOrder.PASS: "pass", KeyOrder.NO: False}


# -- figures


@app.command()
def stats(
    context: typer.Context,
    topic: OptionalTopic = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(help="How often --watch refreshes.")] = "1s",
    every: Annotated[bool, typer.Option("--all", help="Show all topics, also if there are more than 200.")] = False,
    as_json: Json = False,
) -> None:
    """Show figures by topic and group.

    How many jobs are delayed, ready, running, dead and done. With more than 200 topics, those with problems come first:
    not reachable, overdue, ready without consumers, dead. --watch --json prints a line each time.
    """
    most = sys.maxsize if every else terminal.MOST_SHOWN
    pause_s = max(0.1, to_ms(interval, "interval") / 1000)
    with open_queue(context) as queue:
        if not watch:
            found = queue.stats(topic)
            if as_json:
                terminal.print_json(json_out.stats_json(found))
            else:
                terminal.console().print(terminal.stats_view(found, most))
            return
        _watch(queue, topic, pause_s, as_json, most)


def _watch(queue: Queue, topic: str | None, pause_s: float, as_json: bool, most: int) -> None:
    console = terminal.console()
    # Elsewhere than on a terminal, Live shows nothing before its end, and never learns that its reader has gone away.
    live = Live(console=console, auto_refresh=False, screen=sys.stdout.isatty()) if console.is_terminal else None
    with nullcontext() if as_json or live is None else live:
        while True:
            found = queue.stats(topic)
            if as_json:
                terminal.print_json(json_out.stats_json(found))
            elif live is None:
                console.print(terminal.stats_view(found, most))
                sys.stdout.flush()
            else:
                live.update(terminal.stats_view(found, most), refresh=True)
            time.sleep(pause_s)


@app.command()
def upcoming(
    context: typer.Context,
    topic: OptionalTopic = None,
    window: Annotated[list[str] | None, typer.Option(help="A window from now; may be repeated [1m 10m 1h 1d].")] = None,
    as_json: Json = False,
) -> None:
    """Show the coming load.

    How many jobs come due within each window from now, overdue ones included. A job is counted once, whatever
    the number of groups.
    """
    with open_queue(context) as queue:
        totals = queue.upcoming(topic, windows=window or ("1m", "10m", "1h", "1d"))
    if as_json:
        terminal.print_json(totals)
    else:
        terminal.console().print(terminal.upcoming_view(totals))


@app.command()
def scale(
    context: typer.Context,
    topic: Topic,
    group: GroupOption = DEFAULT_GROUP,
    within: Annotated[str, typer.Option(help="How far to look ahead, at most an hour.")] = "10m",
    slo: Annotated[str, typer.Option(help="How late an attempt may start.")] = "5s",
    concurrency: Annotated[int, typer.Option(help="How many jobs a replica runs at once.")] = 100,
    attempt: Annotated[
        str | None, typer.Option(help="How long an attempt takes; without it, as measured in the newest history.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how many replicas of a worker a topic needs.

    So that each attempt starts in time: those that are ready now, and those that are due soon.
    """
    with open_queue(context) as queue:
        found = queue.scale(topic, group, within=within, slo=slo, concurrency=concurrency, attempt=attempt)
    if as_json:
        terminal.print_json(dataclasses.asdict(found))
    else:
        terminal.console().print(terminal.scale_view(found))


class KeysBy(StrEnum):
    """What the keys with most of it are listed by."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"


_BY: dict[KeysBy, By] = {KeysBy.WAITING: "waiting", KeysBy.RUNNING: "running", KeysBy.PAUSED: "paused"}
PausedKey = Annotated[str | None, typer.Option("--key", help="Only this key's jobs, in a topic with a limit of keys.")]


@TOPIC.command()
def keys(
    context: typer.Context,
    topic: Topic,
    by: Annotated[
        KeysBy, typer.Option(help="Sort by jobs that wait or that run; or list paused keys.")
    ] = KeysBy.WAITING,
    group: GroupOption = DEFAULT_GROUP,
    limit: Annotated[int, typer.Option(help="How many keys at most.")] = 20,
    as_json: Json = False,
) -> None:
    """Show the keys with the most jobs.

    How many jobs of a key wait for the others of the key, and how many run. For topics with a limit of keys.
    """
    with open_queue(context) as queue:
        found = queue.keys(topic, _BY[by], group, limit)
    if as_json:
        terminal.print_json([dataclasses.asdict(load) for load in found])
    else:
        terminal.console().print(terminal.keys_view(found))


# -- topics


@TOPIC.command("list")
def topic_list(context: typer.Context, as_json: Json = False) -> None:
    """List the names of all topics, one a line."""
    with open_queue(context) as queue:
        names = topics_of(queue, None)
    if as_json:
        terminal.print_json(names)
    elif names:
        terminal.say("\n".join(map(visible, names)))


@TOPIC.command()
def pause(context: typer.Context, topic: Topic, key: PausedKey = None, as_json: Json = False) -> None:
    """Pause a topic, or one key of it.

    No new attempt of its jobs starts until resume; running ones go on.
    """
    with open_queue(context) as queue:
        queue.pause(topic, key=key)
    _answer_paused(as_json, topic, key, True, "is paused")


@TOPIC.command()
def resume(context: typer.Context, topic: Topic, key: PausedKey = None, as_json: Json = False) -> None:
    """Resume a paused topic, or a paused key.

    Jobs that came due meanwhile are delivered now.
    """
    with open_queue(context) as queue:
        queue.resume(topic, key=key)
    _answer_paused(as_json, topic, key, False, "is resumed")


def _answer_paused(as_json: bool, topic: str, key: str | None, paused: bool, text: str) -> None:
    which = {} if key is None else {"key": key}
    answer(
        as_json, {"topic": topic, **which, "paused": paused}, f"{topic if key is None else f'{topic}, {key}'} {text}"
    )


@TOPIC.command()
def configure(
    context: typer.Context,
    topic: Topic,
    ttr: Ttr = None,
    retry: Retry = None,
    shards: Annotated[int | None, option("shards", OF_TOPIC)] = None,
    max_deliveries: Annotated[int | None, option("max_deliveries", OF_TOPIC)] = None,
    groups: Annotated[list[str] | None, option("groups", OF_TOPIC, "May be repeated.")] = None,
    rate: Annotated[float | None, option("rate", OF_TOPIC)] = None,
    durable: Annotated[str | None, option("durable", OF_TOPIC)] = None,
    key_concurrency: Annotated[int | None, option("key_concurrency", OF_TOPIC)] = None,
    key_order: Annotated[KeyOrder | None, option("key_order", OF_TOPIC)] = None,
    key_rate: Annotated[str | None, option("key_rate", OF_TOPIC)] = None,
    result: Annotated[list[str] | None, option("result", OF_TOPIC, "Such as 1d, or GROUP=1d; may be repeated.")] = None,
    dead_for: Annotated[str | None, option("dead_for", OF_TOPIC, "Such as 90d.")] = None,
    create: Annotated[bool, option("create", OF_TOPIC)] = False,
    as_json: Json = False,
) -> None:
    """Show a topic's settings, change them, or create a topic.

    Shows all settings; those not given stay as they are. Without any option, nothing is changed.

    \b
    streamdq topic configure order.close --retry '15s 3m 10m' --group default --group audit
    """  # noqa: D301 - typer reads the mark
    with open_queue(context) as queue:
        settings = queue.configure(
            topic, ttr=ttr, retry=retry, shards=shards, max_deliveries=max_deliveries, groups=groups, rate=rate,
            durable=durable, key_concurrency=key_concurrency, key_rate=key_rate, create=create,
            key_order=None if key_order is None else _KEY_ORDERS[key_order], result=_retention(result),
            dead_for=dead_for,
        )  # fmt: skip
    if as_json:
        terminal.print_json(json_out.settings_json(topic, settings))
    else:
        terminal.console().print(terminal.settings_view(topic, settings))


def _retention(texts: list[str] | None) -> str | dict[str, str] | None:
    """``1d``, or ``GROUP=1d`` for each group."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    if not all("=" in text for text in texts):
        raise InvalidInput("--result: name the group of each, such as --result billing=1d")
    return dict(text.split("=", 1) for text in texts)


@TOPIC.command()
def delete(
    context: typer.Context,
    topic: Topic,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it holds jobs, which are deleted, or has consumers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete an empty topic.

    Deletes its settings, figures and history. Enqueuing to it or serving it creates it again. Exit code 1: it holds
    jobs, or has consumers.
    """
    with open_queue(context) as queue:
        queue.delete_topic(topic, force=force)
    answer(as_json, {"topic": topic, "deleted": True}, f"{topic} is deleted")


# -- checks


@app.command()
def audit(context: typer.Context, topic: OptionalTopic = None, as_json: Json = False) -> None:
    """Prove that no job is lost.

    Checks that enqueued = done + dead + cancelled + expired + live for every group, and that no job is orphaned. Exit
    code 1: a check failed.
    """
    with open_queue(context) as queue:
        found = queue.audit(topic)
    if as_json:
        terminal.print_json(json_out.audit_json(found))
    else:
        terminal.console().print(terminal.audit_view(found))
    if not found.balanced:
        raise typer.Exit(EXIT_NO)


@app.command()
def doctor(
    context: typer.Context,
    acl: Annotated[bool, typer.Option("--acl", help="Print the rights that streamdq's Redis user needs.")] = False,
    as_json: Json = False,
) -> None:
    """Check this Redis, and say what to change.

    Checks version, persistence, memory policy, clock, mover and orphans. Exit code 1: jobs are stuck or can be lost,
    for example because there is no append-only file. Advice (marked !) alone exits with 0.

    \b
    streamdq doctor --acl      # lines for redis-cli: a user with no more rights than this namespace needs
    """  # noqa: D301 - typer reads the mark
    if acl:
        settings = Settings()
        namespace, url = check_namespace(context.obj.namespace or settings.namespace), context.obj.url or settings.url
        is_cluster = url.startswith(("redis+cluster://", "rediss+cluster://"))
        line = f"ACL SETUSER streamdq on resetpass >PASSWORD {rights(namespace, is_cluster)}"
        more = f"ACL SETUSER streamdq {more_rights()}"
        answer(as_json, {"acl": line, "acl_of_functions": more}, f"{line}\n{more}")
        return
    with open_queue(context) as queue:
        findings = queue.doctor()
    if as_json:
        terminal.print_json([{"verdict": f.verdict, "what": f.what, "advice": f.advice} for f in findings])
    else:
        terminal.console().print(terminal.doctor_view(findings))
    if any(finding.verdict == "problem" for finding in findings):
        raise typer.Exit(EXIT_NO)
