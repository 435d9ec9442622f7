"""Everything that one can do with a queue. An operation is a generator, which Queue and AsyncQueue both carry out."""
