"""What the tests don't notice: ``python -m tests.mutants`` changes scripts and decisions, one place at a time, and runs
the tests that should fail then.
"""
