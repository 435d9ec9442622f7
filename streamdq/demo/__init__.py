"""`streamdq demo`: a whole queue, run for less than a minute."""
