#!/bin/sh
# A job that is put in over HTTP is delivered to its url when it is due: the API, the callback worker and a receiver,
# all on this machine. Needs curl, and streamdq[http] in PATH. STREAMDQ_URL tells where Redis is; else it brings its own.
set -eu

API_PORT=${API_PORT:-8080} RECEIVER_PORT=${RECEIVER_PORT:-9000}
work=$(mktemp -d)
export STREAMDQ_URL="${STREAMDQ_URL:-embedded://$work}"
started=
trap 'kill $started 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# The receiver: prints each POST it gets. Yours is the service that is to be called.
python3 -u - "$RECEIVER_PORT" <<'PYTHON' &
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(f"received POST {self.path} {body.decode()} id={self.headers['webhook-id']}")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
PYTHON
started="$started $!"

streamdq serve --port "$API_PORT" --log-level warning &
started="$started $!"
streamdq callback --topic notify --allow 127.0.0.1 --log-level warning &
started="$started $!"

api="http://127.0.0.1:$API_PORT"
curl --silent --fail --retry 60 --retry-delay 1 --retry-connrefused -o "$work/ready" "$api/health/ready"

job="$api/v1/topics/notify/jobs/order-42"
curl --silent --fail -X PUT "$job" -H 'Content-Type: application/json' \
    -d "{\"body\": {\"order_id\": 42}, \"delay\": \"2s\", \"url\": \"http://127.0.0.1:$RECEIVER_PORT/paid\"}"
echo

# 404: the job has ended, it was delivered.
while [ "$(curl --silent -o "$work/job" -w '%{http_code}' "$job")" = 200 ]; do sleep 0.2; done
echo "delivered"
