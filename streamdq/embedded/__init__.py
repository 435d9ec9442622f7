"""The embedded Redis server: starts on first use, and stops with the last process that uses it."""
