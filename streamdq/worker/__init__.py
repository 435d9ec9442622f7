"""The worker: claims ready jobs, calls their handlers, and sends Redis how each attempt ended."""
