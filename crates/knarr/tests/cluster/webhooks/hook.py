"""Webhooks: one adds a container to Pods, one refuses ConfigMaps that name no owner, one converts Routes.

Their argument is a folder with their certificate and key.
"""

import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIDECAR = {"name": "sidecar", "image": "test.local/busybox", "command": ["sleep", "1000000"]}


def add(request):
    patch = [{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        "warnings": ["a sidecar was added for " + request["userInfo"]["username"]],
    }


def check(request):
    new, old = request["object"], request["oldObject"]
    if request["operation"] == "DELETE":
        allowed, why = "kept" not in old["metadata"].get("labels", {}), "it is to be kept"
    else:
        allowed, why = "owner" in new.get("data", {}), "data.owner must say whose it is"
    status = {"code": 403, "reason": "Forbidden", "message": why}
    return {"allowed": True} if allowed else {"allowed": False, "status": status}


def convert(request):
    wanted = request["desiredAPIVersion"]
    try:
        converted = [route(found, wanted) for found in request["objects"]]
    except ValueError as failure:
        return {"result": {"status": "Failure", "message": str(failure)}}
    return {"convertedObjects": converted, "result": {"status": "Success"}}


def route(found, wanted):
    """Version 1 has one text where version 2 has a host and a port. What is not there stays away."""
    spec, new = found.get("spec", {}), {}
    if found["apiVersion"] == wanted:
        new = spec
    elif wanted.endswith("/v1") and "host" in spec:
        new = {"to": f"{spec['host']}:{spec.get('port', 80)}"}
    elif wanted.endswith("/v2") and "to" in spec:
        host, colon, port = spec["to"].rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(spec["to"] + " is no host and port")
        new = {"host": host, "port": int(port)}
    return found | {"apiVersion": wanted, "spec": new}


ANSWERS = {"/add": add, "/check": check, "/convert": convert}


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"ok")

    def do_POST(self):
        length = int(self.headers["content-length"])
        review = json.loads(self.rfile.read(length))
        request = review.pop("request")
        review["response"] = ANSWERS[self.path.partition("?")[0]](request) | {"uid": request["uid"]}
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
