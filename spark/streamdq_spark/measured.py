"""Of what and by what measure the tables of an output folder are: of which namespace, what is on time, and by whose
clocks hours are compared. All of a folder's tables have the same.
"""

from __future__ import annotations

import json
from contextlib import suppress

from streamdq.dump.folder import Folder
from streamdq.errors import InvalidInput

from .table_files import table_files

_FILE = "measured.json"


def check(folder: Folder, slo_ms: int, objective: float, tz: str, namespace: str) -> None:
    """Refuses days that an earlier run has measured in another way than this run would.

    Raises:
        InvalidInput: the folder has tables of another namespace, SLO or time zone.
    """
    kept = _kept(folder)
    if kept in (None, (slo_ms, objective, tz, namespace)) or not table_files(folder):
        return
    slo_before, objective_before, tz_before, namespace_before = kept
    if namespace_before != namespace:
        raise InvalidInput(
            f"the tables in {folder.url} are of the namespace {namespace_before!r}: use another folder for "
            f"{namespace!r}"
        )
    if (slo_before, objective_before) != (slo_ms, objective):
        raise InvalidInput(
            f"the tables in {folder.url} have --slo {slo_before}ms --objective {objective_before:.9g}: use another "
            "folder for another SLO"
        )
    raise InvalidInput(f"the tables in {folder.url} have --tz {tz_before}: use another folder for another time zone")


def note(folder: Folder, slo_ms: int, objective: float, tz: str, namespace: str) -> None:
    """Before the first table is written, as the summary is there only when all of them are: a run that is killed leaves
    some.
    """
    if _kept(folder) != (slo_ms, objective, tz, namespace):
        kept = {"slo_ms": slo_ms, "objective": objective, "tz": tz, "namespace": namespace}
        folder.write(_FILE, json.dumps(kept, indent=2).encode() + b"\n")


def _kept(folder: Folder) -> tuple[int, float, str, str] | None:
    """None: nobody knows, or nothing that can be read says so."""
    with suppress(ValueError, KeyError, TypeError):
        kept = json.loads(folder.read(_FILE) or b"")
        return kept["slo_ms"], kept["objective"], kept["tz"], kept["namespace"]
    return None
