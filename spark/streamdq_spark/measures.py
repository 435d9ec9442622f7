"""What an analysis measures by, unless an option says otherwise. Questions and report both name it."""

from __future__ import annotations

SLO_MS = 1000
"""An attempt that starts within it is on time."""
OBJECTIVE = 0.99
"""The share of attempts that should be on time."""
DEFAULT_TZ = "UTC"
"""The zone by whose clocks hours are the same hour of a week."""
BUDGET_DAYS = 28
"""So many days have an error budget."""
BURN_LIMITS = {
    name: share * BUDGET_DAYS * 24 / hours
    for name, share, hours in (("burn_1h", 0.02, 1), ("burn_6h", 0.05, 6), ("burn_3d", 0.1, 72))
}
"""From which burn rate on a window is an alert: if it goes on, that share of the budget is spent in so many hours."""
MIN_LATE = 5
"""Fewer late attempts in a window are no alert, and in an incident none, however few attempts there were."""
BUSY = 0.8
"""The share of a worker's slots that is planned, as by `streamdq scale`: durations vary."""
