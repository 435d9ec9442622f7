"""What requests and answers contain, by subject."""
