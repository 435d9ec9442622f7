"""The data in Redis: the scripts that change it, plain reads, stored formats, and topics."""
