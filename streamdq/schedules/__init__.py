"""When schedules run: civil time and recurrences. What runs them is in the mover, what callers do with them in the
operations.
"""
