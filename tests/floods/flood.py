"""Floods, without a line of roost and without a library for HTTP/2: sockets, TLS, frames (RFC 9113).

    flood.py HOST:PORT CERTS ROLE KIND COUNT SECONDS    one JSON object: what was seen

Of a KIND that needs no certificate, CERTS is not read."""
import json
import os
import socket
import ssl
import struct
import sys
import time

DATA, HEADERS, RESET, SETTINGS, WINDOW, CONTINUATION = 0, 1, 3, 4, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME_MAX = 16384
CHUNK = b"x" * FRAME_MAX


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header that no table holds, and that goes into none (RFC 7541 6.2.2)."""
    def text(data):
        count, out = len(data), b""
        if count < 127:
            return bytes([count]) + data
        out, count = b"\x7f", count - 127
        while count >= 128:
            out, count = out + bytes([count % 128 + 128]), count // 128
        return out + bytes([count]) + data
    return b"\x00" + text(name.encode()) + text(value.encode())


def call_headers(path, *more):
    return b"".join(literal(name, value) for name, value in [
        (":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "localhost"),
        ("content-type", "application/grpc"), ("te", "trailers"), *more])


def begin_message(count):
    """A message of gRPC that says that it has so many bytes."""
    return struct.pack(">BI", 0, count)


class Peer:
    """One connection that has shaken hands."""

    def __init__(self, address, certs, role):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(f"{certs}/{role}/ca.crt")
        context.load_cert_chain(f"{certs}/{role}/{role}.crt", f"{certs}/{role}/{role}.key")
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(socket.create_connection(address, timeout=20))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        self.next_stream, self.inbox = 1, b""

    def open(self, path, more=b""):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, call_headers(path)) + more)
        return stream

    def windows(self):
        """The windows that the server opened meanwhile: stream -> bytes. Answers what must be answered."""
        opened = {}
        self.socket.setblocking(False)
        try:
            while True:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("closed")
                self.inbox += data
        except ssl.SSLWantReadError:
            pass
        finally:
            self.socket.settimeout(20)
        while len(self.inbox) >= 9:
            count = int.from_bytes(self.inbox[:3], "big")
            if len(self.inbox) < 9 + count:
                break
            kind, flags = self.inbox[3:5]
            stream, payload = int.from_bytes(self.inbox[5:9], "big"), self.inbox[9:9 + count]
            self.inbox = self.inbox[9 + count:]
            if kind == WINDOW:
                opened[stream] = opened.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind in (SETTINGS, 6) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, payload if kind == 6 else b""))
        return opened


def half_open(address, count, seconds):
    """So many connections, as many at a time as there may be files, which send nothing."""
    open_now, made, at_a_time = [], 0, min(count, 4000)
    until = time.monotonic() + seconds
    while made < count and time.monotonic() < until:
        while len(open_now) < at_a_time and made < count:
            peer = socket.socket()
            peer.settimeout(2)
            try:
                peer.connect(address)
            except OSError:  # its queue is full
                peer.close()
                continue
            open_now.append(peer)
            made += 1
        for peer in open_now:
            peer.close()
        open_now = []
    return {"made": made}


def unfinished(peer_of, count, seconds):
    """Messages of 18 MB that never end, in all streams that there may be, on so many connections."""
    sent, closed, until = 0, 0, time.monotonic() + seconds
    peers = []
    while time.monotonic() < until:
        while len(peers) < count:
            peer = peer_of()
            peer.streams = {peer.open("/roost.v1.Cluster/Describe"): 65535 for _ in range(60)}
            for stream in peer.streams:
                peer.socket.sendall(frame(DATA, 0, stream, begin_message(18 << 20)))
            peer.connection = 65535
            peers.append(peer)
        for peer in list(peers):
            try:
                for stream, window in peer.windows().items():
                    if stream == 0:
                        peer.connection += window
                    elif stream in peer.streams:
                        peer.streams[stream] += window
                for stream, window in peer.streams.items():
                    if window >= 2 * FRAME_MAX and peer.connection >= 2 * FRAME_MAX:
                        peer.socket.sendall(frame(DATA, 0, stream, CHUNK))
                        peer.streams[stream] -= FRAME_MAX
                        peer.connection -= FRAME_MAX
                        sent += FRAME_MAX
            except OSError:
                closed += 1
                peers.remove(peer)
    return {"sent_mb": sent >> 20, "closed": closed}


def headers(peer_of, count, seconds):
    """One header of `count` MB, in CONTINUATION frames, again and again."""
    closed, sent, until = 0, 0, time.monotonic() + seconds
    size = count << 20
    while time.monotonic() < until:
        peer = peer_of()
        block = call_headers("/roost.v1.Cluster/Describe") + literal("x-long", "v" * size)
        try:
            peer.socket.sendall(frame(HEADERS, 0, 1, block[:FRAME_MAX]))
            for at in range(FRAME_MAX, len(block), FRAME_MAX):
                peer.socket.sendall(frame(CONTINUATION, 0, 1, block[at:at + FRAME_MAX]))
                sent += FRAME_MAX
        except OSError:
            closed += 1
    return {"sent_mb": sent >> 20, "closed": closed}


def resets(peer_of, _, seconds):
    """Calls that are given up as they begin."""
    closed, made, until = 0, 0, time.monotonic() + seconds
    peer = peer_of()
    while time.monotonic() < until:
        try:
            batch = b""
            for _ in range(50):
                stream, peer.next_stream = peer.next_stream, peer.next_stream + 2
                batch += frame(HEADERS, END_HEADERS, stream, call_headers("/roost.v1.Cluster/Describe"))
                batch += frame(RESET, 0, stream, struct.pack(">I", 8))
            peer.socket.sendall(batch)
            made += 50
            peer.windows()
        except OSError:
            closed += 1
            peer = peer_of()
    return {"made": made, "closed": closed}


def idle(peer_of, count, seconds):
    """So many connections that shake hands, stay, and answer pings; another one for each that is closed."""
    peers, most, closed, until = [], 0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        if len(peers) < count:
            try:
                peers.append(peer_of())
            except OSError:
                closed += 1
        for peer in list(peers):
            try:
                peer.windows()
            except OSError:
                closed += 1
                peers.remove(peer)
        most = max(most, len(peers))
    return {"held": len(peers), "most": most, "closed": closed}


def main():
    where, certs, role, kind, count, seconds = sys.argv[1:7]
    host, port = where.rsplit(":", 1)
    address = (host, int(port))
    if kind == "half_open":
        seen = half_open(address, int(count), float(seconds))
    else:
        flood = {"unfinished": unfinished, "headers": headers, "resets": resets, "idle": idle}[kind]
        seen = flood(lambda: Peer(address, certs, role), int(count), float(seconds))
    print(json.dumps(seen))
    sys.stdout.flush()
    os._exit(0)


main()
