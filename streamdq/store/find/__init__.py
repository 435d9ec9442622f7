"""What a search asks of the scripts."""
