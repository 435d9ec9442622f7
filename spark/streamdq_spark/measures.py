"""What an analysis measures by, unless it is told otherwise. Questions and report both name it."""

from __future__ import annotations

SLO_MS = 1000
"""An attempt that starts within it is on time."""
OBJECTIVE = 0.99
"""The share of attempts that should be on time."""
DEFAULT_TZ = "UTC"
"""The zone by whose clocks hours are the same hour of a week."""
