"""A key-value server of a few lines: what stands here is yours, in any language."""

from __future__ import annotations

import http.server
import pathlib
import signal
import sys


def main() -> None:
    """`server.py PORT FOLDER`: PUT and GET one file a key."""
    port, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            length = int(self.headers["Content-Length"])
            (folder / self.path.strip("/")).write_bytes(self.rfile.read(length))
            self.send_response(204)
            self.end_headers()

        def do_GET(self) -> None:
            file = folder / (self.path.strip("/") or ".")
            body = file.read_bytes() if file.is_file() else b""
            self.send_response(200 if file.exists() else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
