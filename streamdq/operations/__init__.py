"""Everything that callers can do with a queue. An operation is a generator; Queue and AsyncQueue run it."""
