"""Processes and servers that are killed, stopped and cut off; what is lost and what runs twice is counted."""
