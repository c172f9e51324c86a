"""A worker's side of the wire without a line of roost: grpcio, and messages made from roost.proto.

What the tests' clients in Python share. Whoever imports this has roost_pb2.py, made by protoc, on
the path. A call that fails raises; nothing is tried again.
"""
import hashlib
import queue
import threading

import grpc
import roost_pb2 as pb

CALL_S = 30
STREAM_S = 600
PORTION_BYTES, PORTION_CHUNKS = 512 * 1024, 1024


class Stream:
    """A two-way stream: send() any time, receive() the next message."""

    def __init__(self, channel, path, request, reply):
        self.outbox = queue.Queue()
        method = channel.stream_stream(path, request_serializer=request.SerializeToString,
                                       response_deserializer=reply.FromString)
        self.replies = method(iter(self.outbox.get, None), timeout=STREAM_S)

    def send(self, message):
        self.outbox.put(message)

    def receive(self):
        return next(self.replies)

    def end(self):
        """Nothing more is sent: the other side ends it as well. (It bounds how many may be reset.)"""
        self.outbox.put(None)
        for _ in self.replies:
            pass


class Server:
    """One that has chunks: their numbers, the way to it, the stream to it, and the boot that it said."""

    def __init__(self, channel, member, secret, chunks):
        self.chunks, self.channel = chunks, channel
        self.stream = Stream(channel, "/roost.v1.Shard/Exchange", pb.ToShard, pb.FromShard)
        self.stream.send(pb.ToShard(hello=pb.Hello(member=member, secret=secret)))
        answer = self.stream.receive()
        if answer.WhichOneof("header") != "welcome":
            raise RuntimeError(f"hello: {answer}")
        self.boot = answer.welcome.boot


class Member:
    """A worker that has joined; it stays a member until the process ends."""

    def __init__(self, coordinator, certs, name):
        def read(file_name):
            with open(f"{certs}/worker/{file_name}", "rb") as file:
                return file.read()

        credentials = grpc.ssl_channel_credentials(read("ca.crt"), read("worker.key"), read("worker.crt"))
        self.channel = grpc.secure_channel(coordinator, credentials)
        described = self.call("Describe", pb.DescribeRequest(with_chunks=True), pb.DescribeReply)
        self.run = described.run
        self.sequence = self.last_id = 0
        self.join(name)
        self.servers = [Server(grpc.secure_channel(server.address, credentials), self.member, self.secret,
                               [chunk for part in described.ranges if part.server == number
                                for chunk in range(part.first, part.first + part.count)])
                        for number, server in enumerate(described.servers)]

    def join(self, name):
        joined = self.call("Join", pb.JoinRequest(wire_version=2, name=name, device="python",
                                                  fingerprint=hashlib.sha256(b"python").digest()), pb.JoinReply)
        self.member, self.generation, self.secret = joined.member, joined.generation, joined.secret
        self.keep_alive(joined.heartbeat_ms / 1000)

    def call(self, name, request, reply):
        method = self.channel.unary_unary(f"/roost.v1.Cluster/{name}", response_deserializer=reply.FromString,
                                          request_serializer=type(request).SerializeToString)
        return method(request, timeout=CALL_S)

    def keep_alive(self, seconds):
        control = Stream(self.channel, "/roost.v1.Cluster/Member", pb.MemberReport, pb.MemberNotice)

        def beat():
            while True:
                control.send(pb.MemberReport(member=self.member, secret=self.secret))
                threading.Event().wait(seconds)

        threading.Thread(target=beat, daemon=True).start()

    def next_id(self):
        """A name for a push or pull."""
        self.last_id += 1
        return self.last_id

    def weights(self, server):
        """The numbers of the server's chunks that hold weights: all but the loss."""
        return [number for number in server.chunks if self.run.chunks[number].parameter != "loss"]

    def portions(self, chunks_of):
        """The servers with those of their chunks, as many at a time as one pull or push may hold (in fp32)."""
        for server in self.servers:
            portion, size = [], 0
            for number in chunks_of(server):
                more = 4 * self.run.chunks[number].rows * self.run.chunks[number].cols
                if size + more > PORTION_BYTES or len(portion) == PORTION_CHUNKS:
                    yield server, portion
                    portion, size = [], 0
                portion.append(number)
                size += more
            if portion:
                yield server, portion

    def tickets(self):
        """One after the other as they are granted, until the run is over."""
        while True:
            self.sequence += 1
            answer = self.call("Acquire", pb.AcquireRequest(member=self.member, secret=self.secret,
                                                            generation=self.generation, sequence=self.sequence,
                                                            wait_ms=1000), pb.AcquireReply)
            if answer.result == pb.ACQUIRE_END:
                return
            if answer.result == pb.ACQUIRE_TICKET:
                yield answer.ticket
