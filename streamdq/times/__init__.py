"""Redis's time and this machine's, and durations and moments as users write them."""
