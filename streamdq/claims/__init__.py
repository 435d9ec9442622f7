"""Jobs in a consumer's hands: how they are claimed, how attempts end, and what that adds to the metrics."""
