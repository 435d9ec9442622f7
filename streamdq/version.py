"""The version, in a module that imports nothing else. Packages take it from here."""

__version__ = "0.2.0.dev0"
