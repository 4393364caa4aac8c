"""A web server that does what its script says."""

import http.server
import threading

from support.sources import SECRET


class Hook(http.server.ThreadingHTTPServer):
    """Answers as its script says, 200 when it has ended; remembers what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.asked, self.connections, self.seen = [], [], 0, set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def get_request(self):
        self.connections += 1
        return super().get_request()

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, dict(self.headers), body))
        step = self.server.script.pop(0) if self.server.script else 200
        if callable(step):
            step(self)
            return
        status, headers = step if isinstance(step, tuple) else (step, {})
        answer = b"" if status in (204, 304) else f"content of the answer: {SECRET}".encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass
