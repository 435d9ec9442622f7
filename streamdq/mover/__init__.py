"""From the bucket to the streams on time; and back to their group, what a consumer left."""
