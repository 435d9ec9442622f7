"""The data in Redis: the scripts that change it, plain reads, stored formats, and topics.

A plain read is an operation that returns typed values, so callers see neither Redis commands nor raw replies. Reads of
several shards are sent together, in calls of at most STEP commands, so most take one round trip. Error replies are
raised (``checked``), unless a docstring says otherwise.
"""
