"""What Redis holds: the scripts that change it, plain reads, stored formats, and topics."""
