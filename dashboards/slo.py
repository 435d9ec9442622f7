"""The promise that is watched: which share of attempts must start within which time after they are due."""

OBJECTIVE = 0.99
BUDGET = round(1 - OBJECTIVE, 6)
ON_TIME_LE = "1.0"
"""The lateness histogram's bucket, as prometheus-client writes its bound: one second."""

BUDGET_WINDOW = "3d"
SHORT_WINDOWS = ("5m", "30m", "1h")
LONG_WINDOWS = ("6h", BUDGET_WINDOW)
"""Over which the rules keep rates of started and late attempts."""

LEAST_ATTEMPTS = 20
"""A share of fewer than these, within an alert's long window, says nothing."""
