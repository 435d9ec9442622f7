"""The tests: `tests.servers` starts the servers they run on."""
