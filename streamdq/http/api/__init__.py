"""The API: an operation for each thing that one can do with a queue."""
