"""Runs handlers: reads, claims, calls, and writes how each attempt ended."""
