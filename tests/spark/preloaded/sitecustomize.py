"""Python imports this when it starts, if the folder is on its path. Spark's daemons import what their workers need:
they fork one for each step of a read, and each would import for a second.
"""

import gc
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    gc.disable()
    import pyspark.worker  # noqa: F401

    import streamdq_spark.sink
    import streamdq_spark.source  # noqa: F401

    gc.freeze()  # what is imported stays; a worker looks for garbage after each task
    gc.enable()
