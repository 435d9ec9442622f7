"""The lanes in which jobs wait for their keys."""
