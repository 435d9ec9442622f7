"""Jobs that wait for their keys, in Redis."""
