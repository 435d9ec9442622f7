"""What each process that keeps running shares: its logs, and loops that are restarted after a failure."""
