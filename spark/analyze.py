"""The analysis for `spark-submit`: the same options as `streamdq analyze`, except for the master.

    spark-submit --master … spark/analyze.py DIR --output DIR

Where streamdq is not installed, --py-files brings it: `make wheel`, and rename the wheel to .zip. With --waiting, Redis
is where STREAMDQ_URL says.
"""

import sys

from streamdq.cli.app import run

sys.exit(run(["analyze", *sys.argv[1:]]))
