"""Schedules as Redis holds them."""
