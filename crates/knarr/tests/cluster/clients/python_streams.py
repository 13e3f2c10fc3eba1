"""exec, attach and port-forward frame by frame, in every protocol that runs over WebSocket: PyPI `websocket-client`."""

import base64
import json
import ssl
from urllib.parse import urlencode

import websocket
from kubernetes import client, config, watch

SPACE = config.list_kube_config_contexts()[1]["context"]["namespace"]
config.load_kube_config()
SERVER, core = client.Configuration.get_default_copy(), client.CoreV1Api()
STDIN, STDOUT, STDERR, RESULT, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
EXEC = ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io",
        "base64.channel.k8s.io", ""]
OK = {"metadata": {}, "status": "Success"}


class Connection:
    def __init__(self, what, query, protocol):
        self.is_text = "base64" in protocol
        url = SERVER.host.replace("https:", "wss:") + f"/api/v1/namespaces/{SPACE}/pods/shell/{what}"
        # An end of TLS without its farewell is an error.
        tls = {"ca_certs": SERVER.ssl_ca_cert, "certfile": SERVER.cert_file, "keyfile": SERVER.key_file,
               "suppress_ragged_eofs": False}
        self.socket = websocket.create_connection(
            f"{url}?{urlencode(query, doseq=True)}", sslopt=tls, subprotocols=[protocol] if protocol else None, timeout=60)
        assert (self.socket.subprotocol or "") == protocol, self.socket.subprotocol

    def send(self, channel, data):
        if self.is_text:
            self.socket.send(f"{channel}{base64.b64encode(data).decode()}")
        else:
            self.socket.send_binary(bytes([channel]) + data)

    def next(self):
        """Channel and content; at the end the code of the close frame."""
        kind, data = self.socket.recv_data()
        if kind == websocket.ABNF.OPCODE_CLOSE:
            assert self.socket.sock.recv(1) == b"", "nothing comes after the farewell, and TLS ends in order"
            return None, int.from_bytes(data[:2], "big")
        assert kind == (websocket.ABNF.OPCODE_TEXT if self.is_text else websocket.ABNF.OPCODE_BINARY), kind
        return (int(data[:1]), base64.b64decode(data[1:])) if self.is_text else (data[0], data[1:])

    def until(self, wanted):
        said = b""
        while wanted not in said:
            channel, data = self.next()
            assert channel is not None, (wanted, said)
            said += data if channel == STDOUT else b""

    def rest(self):
        """All that still comes, by channel."""
        said = {}
        while True:
            channel, data = self.next()
            if channel is None:
                assert data == 1000, data
                return {channel: data for channel, data in said.items() if data}
            said[channel] = said.get(channel, b"") + data


def run(protocol, *command, **streams):
    return Connection("exec", {"command": list(command), **{name: "true" for name in streams}}, protocol)


def results(protocol):
    tells = protocol.startswith(("v4.", "v5."))
    said = run(protocol, "sh", "-c", "echo out; echo wrong >&2", stdout=1, stderr=1).rest()
    assert (said[STDOUT], said[STDERR]) == (b"out\n", b"wrong\n"), said
    assert not tells and RESULT not in said or json.loads(said[RESULT]) == OK, said
    said = run(protocol, "sh", "-c", "exit 3", stdout=1, stderr=1).rest()
    if not tells:
        assert said == {RESULT: b"command terminated with non-zero exit code: exit status 3"}, said
        return
    status = json.loads(said[RESULT])
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode"), status
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}], status


def input_and_sizes(protocol):
    connection = run(protocol, "sh", "-c", "read line; echo got $line", stdin=1, stdout=1)
    connection.send(STDIN, b"typed\n")
    said = connection.rest()
    assert said[STDOUT] == b"got typed\n", said
    connection = run(protocol, "sh", "-c", 'until test "$(stty size 2>/dev/null)" = "33 99"; do :; done; echo resized',
                     stdin=1, stdout=1, tty=1)
    connection.send(RESIZE, b'{"Width": 99, "Height": 33}')
    said = connection.rest()
    assert said[STDOUT] == b"resized\r\n", said


def close_signal():
    connection = run("v5.channel.k8s.io", "cat", stdin=1, stdout=1)
    connection.send(STDIN, b"to the end")
    connection.send(CLOSE, bytes([STDIN]))
    said = connection.rest()
    assert said[STDOUT] == b"to the end" and json.loads(said[RESULT]) == OK, said


def attached(protocol):
    connection = Connection("attach", {"container": "asks", "stdin": "true", "stdout": "true"}, protocol)
    connection.send(STDIN, f"{protocol}\n".encode())
    connection.until(f"heard {protocol}\n".encode())
    # A client that leaves in order is answered in order; the container goes on for the next one.
    connection.socket.close(timeout=60)


def forwarded(protocol):
    connection = Connection("portforward", {"ports": [80, 82]}, protocol)
    ports = [connection.next() for _ in range(4)]
    number = {80: (80).to_bytes(2, "little"), 82: (82).to_bytes(2, "little")}
    assert ports == [(0, number[80]), (1, number[80]), (2, number[82]), (3, number[82])], ports
    connection.send(0, b"GET /passwd HTTP/1.0\r\n\r\n")
    said = connection.rest()
    assert b" 200 OK" in said[0] and b"root:x:0:0" in said[0], said
    assert b"connection refused" in said[3] and 1 not in said and 2 not in said, said


def refused(what, query, protocol, status):
    try:
        Connection(what, query, protocol)
        raise AssertionError(f"{what} with {query} and {protocol!r} was not refused")
    except websocket.WebSocketBadStatusException as error:
        assert error.status_code == status, error


core.create_namespaced_pod(SPACE, {
    "metadata": {"name": "shell", "annotations": {"kubectl.kubernetes.io/default-container": "main"}},
    "spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "main", "image": "test.local/busybox", "command": ["httpd", "-f", "-p", "80", "-h", "/etc"],
         "readinessProbe": {"httpGet": {"path": "/passwd", "port": 80}, "periodSeconds": 1}},
        {"name": "asks", "image": "test.local/busybox", "stdin": True,
         "command": ["sh", "-c", "while read line; do echo heard $line; done"]}]}})
for event in (watching := watch.Watch()).stream(core.list_namespaced_pod, SPACE, timeout_seconds=60):
    if any(it.type == "Ready" and it.status == "True" for it in event["object"].status.conditions or []):
        watching.stop()
for protocol in EXEC:
    results(protocol)
    input_and_sizes(protocol)
close_signal()
for protocol in EXEC[:3]:
    attached(protocol)
for protocol in ("v4.channel.k8s.io", "v4.base64.channel.k8s.io"):
    forwarded(protocol)
for what, query in (("exec", {"command": "true", "stdout": "true"}), ("portforward", {"ports": 80})):
    refused(what, query, "v9.channel.k8s.io", 403)
refused("exec", {"stdout": "true"}, EXEC[0], 400)
refused("exec", {"command": "true"}, EXEC[0], 400)
refused("portforward", {"ports": 0}, "v4.channel.k8s.io", 400)
refused("exec", {"command": "true", "stdout": "true", "container": "none"}, EXEC[0], 400)
