"""The HTTP API: one module for each subject, with its operations."""
