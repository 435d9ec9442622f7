"""How a call reaches Redis: address, connections, deadline, and which calls may be repeated."""
