"""An API server of others: flunders, which it keeps in memory, and measures of Nodes and Pods, which it makes up.

It believes the front proxy that the ConfigMap extension-apiserver-authentication names, and nobody else. Its argument is a
folder with its certificate and key; TOKEN and AUTHORITY are its ServiceAccount's.
"""

import json
import os
import ssl
import sys
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FLUNDERS = ("wardle.example.com/v1", "Flunder")
MEASURES = "metrics.k8s.io/v1beta1"
CONFIGURATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


def authentication():
    """What the cluster says of its front proxy."""
    address = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
    token = {"authorization": "Bearer " + os.environ["TOKEN"]}
    request = urllib.request.Request("https://" + address + CONFIGURATION, headers=token)
    context = ssl.create_default_context(cadata=os.environ["AUTHORITY"])
    with urllib.request.urlopen(request, context=context) as answer:
        return json.load(answer)["data"]


def resource(name, kind, namespaced, verbs):
    singular = kind.lower() if name == "flunders" else ""
    return {"name": name, "singularName": singular, "kind": kind, "namespaced": namespaced, "verbs": verbs.split()}


RESOURCES = {
    FLUNDERS[0]: [resource("flunders", "Flunder", True, "create delete deletecollection get list watch")],
    MEASURES: [resource("nodes", "NodeMetrics", False, "get list"), resource("pods", "PodMetrics", True, "get list")],
}
SCHEMA = {
    "description": "A Flunder lies on the ground of the sea.",
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "properties": {
                "depth": {"type": "integer", "format": "int32", "description": "How deep it lies, in metres."},
                "by": {"type": "string", "description": "Who has made it."},
            },
        },
    },
    "x-kubernetes-group-version-kind": [{"group": "wardle.example.com", "version": "v1", "kind": "Flunder"}],
}


def documents():
    """What is told of flunders in both versions of OpenAPI, by path."""
    name, where = "com.example.wardle.v1.Flunder", f"/apis/{FLUNDERS[0]}/namespaces/{{namespace}}/flunders"
    known = {"x-kubernetes-action": "list"}
    known["x-kubernetes-group-version-kind"] = SCHEMA["x-kubernetes-group-version-kind"][0]
    about = {"info": {"title": "wardle", "version": "v1"}}
    paths = {"paths": {where: {"get": known | {"responses": {"200": {"description": "OK"}}}}}}
    third = f"/openapi/v3/apis/{FLUNDERS[0]}"
    index = {"paths": {f"apis/{FLUNDERS[0]}": {"serverRelativeURL": third + "?hash=ABC123"}}}
    return {
        "/openapi/v2": {"swagger": "2.0", "definitions": {name: SCHEMA}} | about | paths,
        "/openapi/v3": index,
        third: {"openapi": "3.0.0", "components": {"schemas": {name: SCHEMA}}} | about | paths,
    }


DOCUMENTS = documents()


class Flunders:
    """Objects, and what has happened to them, in order."""

    def __init__(self):
        self.objects, self.events, self.changed = {}, [], threading.Condition()

    def commit(self, kind, key, change):
        with self.changed:
            change["metadata"]["resourceVersion"] = str(len(self.events) + 1)
            if kind == "DELETED":
                del self.objects[key]
            else:
                self.objects[key] = change
            self.events.append((kind, key, json.loads(json.dumps(change))))
            self.changed.notify_all()

    def create(self, namespace, flunder, user):
        metadata = flunder["metadata"]
        key = (namespace, metadata["name"])
        if key in self.objects:
            raise Refusal(409, "AlreadyExists", f'flunders.wardle.example.com "{key[1]}" already exists', key[1])
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        metadata.update({"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now})
        flunder.setdefault("spec", {})["by"] = user
        self.commit("ADDED", key, flunder)
        return flunder

    def get(self, namespace, name):
        found = self.objects.get((namespace, name))
        if found is None:
            raise Refusal(404, "NotFound", f'flunders.wardle.example.com "{name}" not found', name)
        return found

    def delete(self, namespace, name):
        found = self.get(namespace, name)
        self.commit("DELETED", (namespace, name), found)
        return found

    def list(self, namespace, name):
        with self.changed:
            return [found for key, found in self.objects.items() if matches(key, namespace, name)], len(self.events)

    def delete_all(self, namespace):
        return [self.delete(namespace, found["metadata"]["name"]) for found in self.list(namespace, None)[0]]

    def watch(self, namespace, name, since, end):
        """Events after a revision, as they happen; nothing now and then."""
        while time.monotonic() < end:
            with self.changed:
                if len(self.events) <= since:
                    self.changed.wait(1)
                new, since = self.events[since:], len(self.events)
            yield from [(kind, found) for kind, key, found in new if matches(key, namespace, name)]
            yield None


def matches(key, namespace, name):
    return namespace in (None, key[0]) and name in (None, key[1])


class Refusal(Exception):
    """Code, reason, message, and the Flunder's name if it is about one."""

    def status(self):
        code, reason, message, *name = self.args
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        status |= {"code": code, "reason": reason, "message": message}
        # Without them, an absence may be that of the whole kind.
        return status | ({"details": {"group": "wardle.example.com", "kind": "flunders", "name": name[0]}} if name else {})


STORE = Flunders()


def measured(kind, metadata, more):
    usage = {"cpu": "123m", "memory": "77Mi"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    base = {"kind": kind, "apiVersion": MEASURES, "metadata": metadata, "timestamp": now, "window": "1s"}
    return base | ({"usage": usage} if more is None else {"containers": [{"name": more, "usage": usage}]})


MADE_UP = {
    "nodes": ("NodeMetrics", [measured("NodeMetrics", {"name": "test"}, None)]),
    "pods": ("PodMetrics", [measured("PodMetrics", {"name": "made-up", "namespace": "sea"}, "main")]),
}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def serve(self):
        length = int(self.headers["content-length"] or 0)
        body = json.loads(self.rfile.read(length) or "{}")
        try:
            self.answer({} if self.path == "/readyz" else self.asked(self.user(), body))
        except Refusal as refusal:
            self.answer(refusal.status(), refusal.args[0])

    do_GET = do_POST = do_DELETE = serve

    def user(self):
        """Who asks, if a front proxy says it whose certificate and name are right."""
        certificate = self.connection.getpeercert() or {}
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        wanted = json.loads(AUTHENTICATION["requestheader-allowed-names"])
        said = [self.headers[name] for name in json.loads(AUTHENTICATION["requestheader-username-headers"])]
        if not names or (wanted and names[0] not in wanted) or not said[0]:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        [groups] = json.loads(AUTHENTICATION["requestheader-group-headers"])
        return " ".join([said[0], *self.headers.get_all(groups, [])])

    def asked(self, user, body):
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path in DOCUMENTS:
            return DOCUMENTS[url.path]
        version, parts = url.path.removeprefix("/apis/"), []
        for known in RESOURCES:
            if version.startswith(known + "/"):
                version, parts = known, version.removeprefix(known + "/").split("/")
        if version not in RESOURCES:
            raise Refusal(404, "NotFound", "there is nothing at " + url.path)
        if not parts:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": RESOURCES[version]}
        namespace = parts[1] if parts[0] == "namespaces" else None
        plural, name = [*(parts[2:] if namespace else parts), None][:2]
        if version == MEASURES:
            kind, items = MADE_UP[plural]
            return {"kind": kind + "List", "apiVersion": version, "metadata": {}, "items": items}
        return self.flunders(namespace, name, query, (user, body))

    def flunders(self, namespace, name, query, sent):
        if self.command == "POST":
            return STORE.create(namespace, sent[1], sent[0])
        if self.command == "DELETE":
            return listed(STORE.delete_all(namespace), 0) if name is None else STORE.delete(namespace, name)
        if name is not None:
            return STORE.get(namespace, name)
        wanted = query.get("fieldSelector", "").partition("metadata.name=")[2] or None
        if query.get("watch") in ("1", "true"):
            return self.watch(namespace, wanted, query)
        return listed(*STORE.list(namespace, wanted))

    def watch(self, namespace, name, query):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        since = int(query.get("resourceVersion") or 0)
        if query.get("sendInitialEvents") == "true":
            items, since = STORE.list(namespace, name)
            for item in items:
                self.event("ADDED", item)
            metadata = {"resourceVersion": str(since), "annotations": {"k8s.io/initial-events-end": "true"}}
            self.event("BOOKMARK", {"kind": FLUNDERS[1], "apiVersion": FLUNDERS[0], "metadata": metadata})
        end = time.monotonic() + float(query.get("timeoutSeconds", 600))
        for event in STORE.watch(namespace, name, since, end):
            if event is not None:
                self.event(*event)
        self.wfile.write(b"0\r\n\r\n")

    def event(self, kind, found):
        line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def answer(self, body, code=200):
        if body is None:
            return
        body = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def listed(items, revision):
    metadata = {"resourceVersion": str(revision)}
    return {"kind": "FlunderList", "apiVersion": FLUNDERS[0], "metadata": metadata, "items": items}


AUTHENTICATION = authentication()
folder = sys.argv[1]
server = ThreadingHTTPServer(("0.0.0.0", 8443), Api)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/tls.crt", folder + "/tls.key")
# Who shows no certificate is told so.
context.verify_mode = ssl.CERT_OPTIONAL
context.load_verify_locations(cadata=AUTHENTICATION["requestheader-client-ca-file"])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
