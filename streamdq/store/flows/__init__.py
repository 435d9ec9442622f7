"""Flows in Redis: where they are, how they are opened, read and cancelled."""
