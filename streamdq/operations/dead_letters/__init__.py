"""Dead letters: list them, send them back, delete them."""
