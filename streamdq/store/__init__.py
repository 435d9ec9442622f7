"""What Redis holds: the scripts that change it, the formats it is kept in, and topics."""
