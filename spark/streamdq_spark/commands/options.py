"""What the commands that start Spark share."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

import typer

DAY: dict[str, Any] = {"formats": ["%Y-%m-%d"], "metavar": "YYYY-MM-DD", "show_default": False}

Memory = Annotated[
    str | None,
    typer.Option(
        envvar="STREAMDQ_SPARK_MEMORY",
        show_envvar=True,
        show_default=False,
        metavar="SIZE",
        help="Memory for Java's heap, such as 4g [half of the machine's, at most 4g], or for DuckDB [most of it].",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs; sc://HOST:PORT is a Spark Connect server [local[*]].", show_default=False),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's log on stderr.")]
Quarantine = Annotated[bool, typer.Option("--quarantine", help="Leave bad files out, and report them.")]


def date_of(day: datetime | None) -> date | None:
    return day.date() if day else None
