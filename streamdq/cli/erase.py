"""The command erase: what is kept of a person or a customer, in Redis and beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from .. import terminal
from ..errors import InvalidInput
from .common import EXIT_INTERRUPTED, EXIT_NO, Json, OptionalTopic, commands, open_queue

if TYPE_CHECKING:
    from ..erasure import Erased

app = commands()


@app.command()
def erase(
    context: typer.Context,
    topic: OptionalTopic = None,
    key: Annotated[str | None, typer.Option(help="Jobs with this key.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="body.user=7, id=order-42; repeatable, as for find.")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(envvar="STREAMDQ_ARCHIVE", help="Also in this archive.", show_default=False)
    ] = None,
    outbox: Annotated[
        str | None, typer.Option(envvar="STREAMDQ_OUTBOX", help="Also in this outbox.", show_default=False)
    ] = None,
    dump: Annotated[list[str] | None, typer.Option(help="Also in this dump, a folder or URL; may be repeated.")] = None,
    schedules: Annotated[bool, typer.Option("--schedules", help="Also remove schedules that match.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Abort running jobs.")] = False,
    wait: Annotated[str, typer.Option(help="How long to wait for running jobs to end, to erase them as well.")] = "0",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Erase what is kept of a person or customer.

    \b
    streamdq erase --key merchant-7 --dry-run
    streamdq erase --where body.email=jane@example.com --archive sqlite:///dead.db --dump dump/

    Jobs, dead letters, results, history, errors and taken ids, in all topics or in one; and what the archive, the
    outbox and the dumps named have of them. It prints what there is, and asks before it erases. If it is killed, run it
    again. Exit code 1: something remains; the report says why.
    """  # noqa: D301 - typer reads the mark
    from ..erasure import erase as erase_everywhere  # which imports what knows archives, outboxes and dumps

    with open_queue(context) as queue:
        run = partial(
            erase_everywhere, queue, topic, key=key, where=where, archive=archive, outbox=outbox, dumps=dump or (),
            schedules=schedules, abort=abort, wait=wait,
        )  # fmt: skip
        if not (dry_run or yes):
            _ask(run, as_json)
        found = run(dry_run=dry_run)
    if as_json:
        terminal.print_json({**asdict(found), "whole": found.whole})
    else:
        terminal.say(_text(found))
    if not found.whole:
        raise typer.Exit(EXIT_NO)


def _ask(run: Callable[..., Erased], as_json: bool) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("erase: not a terminal; to confirm, pass --yes, or count first with --dry-run")
    if not as_json:
        terminal.say(_text(run(dry_run=True)))
    if not typer.confirm("erase it permanently?", err=True):
        raise typer.Exit(EXIT_INTERRUPTED)


def _text(found: Erased) -> str:
    lines = [
        f"{place}: {amount.found:,} found" + ("" if found.dry_run else f", {amount.erased:,} erased")
        for place, amount in found.places.items()
        if amount.found
    ] or ["nothing found"]
    for one in found.remaining:
        ids = f": {', '.join(one.ids)}" + " …" * (one.count > len(one.ids)) if one.ids else ""
        of = f" of {one.topic}" if one.topic else ""
        lines.append(f"remaining: {one.count:,} in {one.place}{of}: {one.why}{ids}")
    return "\n".join(lines)
