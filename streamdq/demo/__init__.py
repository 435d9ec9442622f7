"""`streamdq demo`: the whole queue at work for less than a minute."""
