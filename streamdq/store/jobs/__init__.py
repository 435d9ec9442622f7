"""A shard's jobs: the codecs of what is stored of one."""
