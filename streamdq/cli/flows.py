"""Commands on flows."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import terminal
from ..operations import json_out
from .common import Json, WithId, answer, commands, open_queue

app = commands()
FLOW = commands(help="Show flows, and cancel them.")
app.add_typer(FLOW, name="flow")

Name = Annotated[str, typer.Argument(help="The flow's name", show_default=False)]


@FLOW.command(cls=WithId)
def show(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show the stages of a flow, and where its time went.

    It prints how long the jobs took, and which ones decided when the flow ended.

    Exit code 1: no such flow, or it was forgotten since it ended.
    """
    with open_queue(context) as queue:
        found = queue.flow_status(name, times=True)
    if found is None:
        answer(as_json, None, f"no flow {name!r}: it ended long ago, or never existed", yes=False)
    elif as_json:
        terminal.print_json(json_out.flow_json(found))
    else:
        terminal.console().print(terminal.flow_view(found))


@FLOW.command(cls=WithId)
def cancel(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Cancel a flow.

    Its jobs that wait are cancelled, and attempts that run are aborted; dead letters stay. When the command has ended,
    no job of the flow starts any more. Exit code 1: no such flow.
    """
    with open_queue(context) as queue:
        yes = queue.cancel_flow(name)
    answer(as_json, {"cancelled": yes}, "cancelled" if yes else f"nothing changed: no flow {name!r}", yes=yes)
