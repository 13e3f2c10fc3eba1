# A client of one frame: its key must come back as it must, and the frame too.
import base64, hashlib, os, socket, sys

node, host = sys.argv[1:]
key = base64.b64encode(os.urandom(16))
stream = socket.create_connection((node, 80), 10)
file = stream.makefile("rb")
request = [b"GET /echo HTTP/1.1", b"Host: " + host.encode(), b"Connection: Upgrade", b"Upgrade: websocket"]
request += [b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + key, b"", b""]
stream.sendall(b"\r\n".join(request))
status = file.readline().split()[1].decode()
headers = {}
while line := file.readline().strip():
    name, _, value = line.partition(b":")
    headers[name.lower()] = value.strip()
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
assert status == "101" and headers[b"sec-websocket-accept"] == accept, (status, headers)
text, mask = b"hello through a tunnel", os.urandom(4)
masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(text))
stream.sendall(bytes([0x81, 0x80 | len(text)]) + mask + masked)
head = file.read(2)
print(status, file.read(head[1]).decode())
