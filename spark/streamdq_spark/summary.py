"""What an analysis covers. The report tells it, too, and needs no Spark for that."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from .dump_files import BadFile
from .measures import DEFAULT_TZ, OBJECTIVE, SLO_MS

SUMMARY = "analysis.json"


@dataclass(slots=True)
class Summary:
    """What an analysis covers: also written, as `analysis.json`, when all tables are.

    `lost`: events that were gone before they were dumped, and entries that were none. `resets`: how often Redis lost
    a history stream or went back to an earlier state; what went with it nobody knows. `unlisted`: files beside the
    dump's that are no part of it. `quarantined`: bad files, left out. `tables`: rows by name. An attempt is
    on time that starts within `slo_ms`; `objective`: the share that is to be. `tz`: by whose clocks hours are
    the same hour of a week. `compare`: the time spans that were compared. `set_aside`: events that can't be.
    """

    first_day: date
    last_day: date
    events: int
    files: int
    lost: int
    resets: int
    unlisted: int
    quarantined: list[BadFile]
    tables: dict[str, int] = field(default_factory=dict)
    slo_ms: int = SLO_MS
    objective: float = OBJECTIVE
    tz: str = DEFAULT_TZ
    compare: tuple[str, str] | None = None
    set_aside: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"first_day": str(self.first_day), "last_day": str(self.last_day)}
