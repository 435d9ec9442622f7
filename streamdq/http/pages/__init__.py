"""The web page: all topics, one topic, one job, and what their buttons do."""
