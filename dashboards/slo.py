"""The service level objective: which share of attempts must start within which time after they are due."""

OBJECTIVE = 0.99
BUDGET = round(1 - OBJECTIVE, 6)
ON_TIME_LE = "1.0"
"""The lateness histogram's bucket, as prometheus-client writes its bound: one second."""

BUDGET_WINDOW = "3d"
SHORT_WINDOWS = ("5m", "30m", "1h")
LONG_WINDOWS = ("6h", BUDGET_WINDOW)
"""The windows over which the rules record rates of started and late attempts."""

LEAST_ATTEMPTS = 20
"""With fewer attempts than this in an alert's long window, a share says nothing."""
