# A server that tells what it was asked.
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Teller(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        asked = f"{self.path} for {self.headers['Host']}, x-added {self.headers['X-Added']}, secret {self.headers['X-Secret']}\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(asked)))
        self.send_header("X-Powered-By", "tell.py")
        self.end_headers()
        self.wfile.write(asked.encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("", 8080), Teller).serve_forever()
