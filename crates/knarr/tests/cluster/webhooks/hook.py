"""A webhook that adds a container. Its argument is a folder with its certificate and key."""

import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIDECAR = {"name": "sidecar", "image": "test.local/busybox", "command": ["sleep", "1000000"]}


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"ok")

    def do_POST(self):
        length = int(self.headers["content-length"])
        request = json.loads(self.rfile.read(length))["request"]
        patch = [{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]
        response = {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            "warnings": ["a sidecar was added for " + request["userInfo"]["username"]],
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        self.answer(json.dumps(review).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


folder = sys.argv[1]
server = ThreadingHTTPServer(("0.0.0.0", 8443), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/tls.crt", folder + "/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
