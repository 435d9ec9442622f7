"""The version, in a module that imports nothing else."""

__version__ = "0.1.0"
