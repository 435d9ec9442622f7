"""The commands of the analytics: entry points of the group ``streamdq.commands``."""
