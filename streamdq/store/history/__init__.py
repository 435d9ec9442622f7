"""The history of jobs as Redis holds it."""
