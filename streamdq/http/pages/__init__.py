"""The web page: all topics, one topic, one job, and the actions of their buttons."""
