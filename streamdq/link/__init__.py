"""How a call reaches Redis: its address, connections and deadlines, and what may be repeated."""
