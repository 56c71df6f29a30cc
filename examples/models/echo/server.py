"""An OpenAI-compatible server that says the last message back: the least a `command` backend has to do."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, NAME = int(sys.argv[1]), sys.argv[2]


class Handler(BaseHTTPRequestHandler):
    """`GET /v1/models` and `POST /v1/chat/completions`, not streamed."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The one model."""
        self._answer({"object": "list", "data": [{"id": NAME, "object": "model"}]})

    def do_POST(self) -> None:
        """The last message again."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": asked["messages"][-1]["content"]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer({"object": "chat.completion", "model": NAME, "choices": [choice]})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
