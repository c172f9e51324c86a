"""Floods, without a line of roost and without a library for HTTP/2: sockets, TLS, frames (RFC 9113).

    flood.py HOST:PORT CERTS ROLE KIND COUNT SECONDS    "begins", and in the end one JSON object: what was seen

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
MAX_CONCURRENT_STREAMS = 3  # its number in SETTINGS
FRAME_MAX = 16384
WINDOW_BYTES = 65535  # which each stream, and the connection, begins with
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
        self.next_stream, self.inbox, self.settings = 1, b"", {}

    def open(self, path, more=b""):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, call_headers(path)) + more)
        return stream

    def windows(self, answer=True):
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
            if kind == SETTINGS:
                self.settings.update(struct.iter_unpack(">HI", payload))
            if kind in (SETTINGS, 6) and not flags & ACK and answer:
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


class Holder(Peer):
    """A peer with messages of 64 MB that never end, in so many streams."""

    def __init__(self, address, certs, role, streams=60):
        super().__init__(address, certs, role)
        self.streams = {self.open("/roost.v1.Cluster/Describe"): WINDOW_BYTES for _ in range(streams)}
        self.connection, self.sent = WINDOW_BYTES, 0
        for stream in self.streams:
            self.socket.sendall(frame(DATA, 0, stream, begin_message(64 << 20)))

    def more(self, at_most=1 << 30):
        """Sends what the windows let, at most so many bytes. Returns how many."""
        before = self.sent
        for stream, window in self.windows().items():
            if stream == 0:
                self.connection += window
            elif stream in self.streams:
                self.streams[stream] += window
        for stream, window in self.streams.items():
            if self.sent - before >= at_most:
                break
            if window >= 2 * FRAME_MAX and self.connection >= 2 * FRAME_MAX:
                self.socket.sendall(frame(DATA, 0, stream, CHUNK))
                self.streams[stream] -= FRAME_MAX
                self.connection -= FRAME_MAX
                self.sent += FRAME_MAX
        return self.sent - before


def unfinished(holder_of, count, seconds, step=lambda holder: holder.more()):
    """Messages that never end, in all streams that there may be, on so many connections."""
    sent, closed, until = 0, 0, time.monotonic() + seconds
    peers = []
    while time.monotonic() < until:
        while len(peers) < count:
            peers.append(holder_of())
        for peer in list(peers):
            try:
                sent += step(peer)
            except OSError:
                closed += 1
                peers.remove(peer)
    return {"sent_mb": sent >> 20, "closed": closed}


def end_another(holder):
    """200 KB of messages that never end; another stream, which began before, ends behind them."""
    ends = holder.open("/roost.v1.Shard/Exchange")
    time.sleep(0.01)  # it is open
    sent = holder.more(200 << 10)
    holder.socket.sendall(frame(DATA, END_STREAM, ends, b""))
    time.sleep(0.01)  # it has ended
    return sent


def ending(holder_of, count, seconds):
    """Messages that never end, and other streams of the same connections that do meanwhile."""
    return unfinished(lambda: holder_of(streams=40), count, seconds, end_another)


def send_empties(holder):
    """200 KB of messages that never end, and 800 that have no bytes, in streams that read and answer each."""
    for _ in range(4):
        reads = holder.open("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        empties = begin_message(0) * 200  # as many answers may wait there
        holder.socket.sendall(frame(DATA, END_STREAM, reads, empties))
        holder.connection -= len(empties)
    holder.socket.sendall(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 20)))  # for the answers
    time.sleep(0.01)
    return holder.more(200 << 10)


def empty(holder_of, count, seconds):
    """Messages that never end, and other ones that are empty."""
    return unfinished(lambda: holder_of(streams=40), count, seconds, send_empties)


def reopening(holder_of, count, seconds):
    """No flood: one honest connection whose stream ends in the middle of a message, so many times one after another; the
    next one is open by then."""
    peer, until, made = holder_of(streams=1), time.monotonic() + seconds, 0
    stream = next(iter(peer.streams))
    try:
        while made < count and time.monotonic() < until:
            peer.more()
            if peer.streams[stream] > 2 * FRAME_MAX:
                continue
            before, stream = stream, peer.open("/roost.v1.Shard/Exchange")
            peer.streams = {stream: WINDOW_BYTES - 5}
            peer.socket.sendall(frame(RESET, 0, before, struct.pack(">I", 8)) + frame(DATA, 0, stream, begin_message(1 << 19)))
            peer.connection -= 5
            made += 1
            time.sleep(0.02)  # as long as that flow does not count as calls that are given up: 512 in 10 s
    except OSError:
        return {"made": made, "closed": 1}
    return {"made": made, "closed": 0}


def whole(holder_of, count, seconds):
    """No flood: so many calls with messages of 8 KB, which the server answers, over one connection."""
    peer, until, made = holder_of(streams=0), time.monotonic() + seconds, 0
    message = begin_message(8000) + b"\x0a\xbc\x3e" + b"x" * 7997
    try:
        while made < count and time.monotonic() < until:
            peer.more()
            if peer.connection > len(message):
                peer.open("/roost.v1.Cluster/Describe", frame(DATA, END_STREAM, peer.next_stream, message))
                peer.connection -= len(message)
                made += 1
            time.sleep(0.002)
    except OSError:
        return {"made": made, "closed": 1}
    return {"made": made, "closed": 0}


def leaving(holder_of, count, seconds):
    """So many connections with 4 MB of messages that never end, which go by themselves after this time."""
    until, closed = time.monotonic() + seconds, 0
    peers = [holder_of() for _ in range(count)]
    while time.monotonic() < until:
        for peer in list(peers):
            try:
                if peer.sent < 4 << 20:
                    peer.more(256 << 10)
                else:
                    peer.windows()
            except OSError:
                closed += 1
                peers.remove(peer)
    return {"held_mb": sum(peer.sent for peer in peers) >> 20, "closed": closed}


def refused(holder_of, count, seconds):
    """No flood: so many questions in this time, one after another, that are no calls of gRPC: a health check of HTTP/2."""
    peer, made = holder_of(streams=0), 0
    block = b"".join(literal(name, value) for name, value in [
        (":method", "GET"), (":scheme", "https"), (":path", "/healthz"), (":authority", "localhost")])
    try:
        while made < count:
            peer.socket.sendall(frame(HEADERS, END_HEADERS | END_STREAM, peer.next_stream, block))
            peer.next_stream += 2
            made += 1
            time.sleep(seconds / count)
            peer.windows()
    except OSError:
        return {"made": made, "closed": 1}
    return {"made": made, "closed": 0}


def calls(holder_of, count, seconds):
    """So many calls at once, of a peer that does not say that it has read how many there may be."""
    peer, until, opened = holder_of(streams=0), time.monotonic() + seconds, 0
    while MAX_CONCURRENT_STREAMS not in peer.settings and time.monotonic() < until:
        peer.windows(answer=False)
    try:
        while opened < count and time.monotonic() < until:
            peer.open("/roost.v1.Cluster/Describe")
            opened += 1
            time.sleep(0.005)
            peer.windows(answer=False)
    except OSError:
        pass
    return {"announced": peer.settings.get(MAX_CONCURRENT_STREAMS), "opened": opened}


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


def whole_headers(peer_of, count, seconds):
    """Calls that stay open with a header of `count` MB, or with 16,000 times the same one (RFC 7541 6.1), in turn, of peers
    that say before they can know that they have read how many bytes there may be."""
    closed, opened, until = 0, 0, time.monotonic() + seconds
    begin = call_headers("/roost.v1.Cluster/Member")
    blocks = [begin + literal("x-long", "v" * (count << 20)), begin + b"\x40" + literal("x", "v")[1:] + b"\xbe" * 16000]
    while time.monotonic() < until:
        peer, block = peer_of(), blocks[closed % 2]
        parts = [block[at:at + FRAME_MAX] for at in range(0, len(block), FRAME_MAX)]
        try:
            peer.socket.sendall(frame(SETTINGS, ACK, 0, b""))
            for _ in range(60):
                for number, part in enumerate(parts):
                    peer.socket.sendall(frame(CONTINUATION if number else HEADERS, END_HEADERS if number == len(parts) - 1 else 0,
                                              peer.next_stream, part))
                peer.next_stream += 2
                opened += 1
                peer.windows(answer=False)
            closed += peer.socket.recv(1) == b""
        except OSError:
            closed += 1
    return {"opened": opened, "closed": closed}


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


def silent(address, _, seconds):
    """One connection that says nothing: after which time it is closed."""
    begun = time.monotonic()
    peer = socket.create_connection(address, timeout=seconds)
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return {"closed_s": time.monotonic() - begun}


OF_ANYBODY = {"half_open": half_open, "silent": silent}
OF_PEERS = {"headers": headers, "whole_headers": whole_headers, "resets": resets, "idle": idle}
OF_HOLDERS = {"unfinished": unfinished, "ending": ending, "empty": empty, "leaving": leaving, "calls": calls,
              "reopening": reopening, "whole": whole, "refused": refused}


def main():
    where, certs, role, kind, count, seconds = sys.argv[1:7]
    host, port = where.rsplit(":", 1)
    address = (host, int(port))
    print("begins", flush=True)
    if kind in OF_ANYBODY:
        seen = OF_ANYBODY[kind](address, int(count), float(seconds))
    elif kind in OF_PEERS:
        seen = OF_PEERS[kind](lambda: Peer(address, certs, role), int(count), float(seconds))
    else:
        seen = OF_HOLDERS[kind](lambda **more: Holder(address, certs, role, **more), int(count), float(seconds))
    print(json.dumps(seen))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
