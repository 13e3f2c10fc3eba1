# A server that switches to a WebSocket and sends frames back, unmasked.
import base64, hashlib, socket, threading

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def serve(stream):
    file = stream.makefile("rb")
    key = b""
    while (line := file.readline().strip()):
        name, _, value = line.partition(b":")
        if name.lower() == b"sec-websocket-key":
            key = value.strip()
    accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    stream.sendall(head + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    while head := file.read(2):
        mask, length = file.read(4), head[1] & 127
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(file.read(length)))
        stream.sendall(bytes([head[0], length]) + payload)


listener = socket.create_server(("", 8080))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
