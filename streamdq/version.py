"""The version, for those who need to name it: it can be imported without anything else."""

__version__ = "0.1.0"
