"""What one can do with a queue. Each operation is a generator that both queues carry out."""
