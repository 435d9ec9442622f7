"""The Redis server of one's own: started on first use, ended with the last process that uses it."""
