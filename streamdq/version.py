"""The version, in a module that imports nothing else. Packages take it from here."""

__version__ = "1.0.0"
