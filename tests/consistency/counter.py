"""A worker that counts: every ticket's gradient is an integer, so that the weights say exactly which
tickets were counted, and how often.

Joins an async run of an `mlp` (`data: {serve: true}`, `numerics: any`, plain SGD whose lr is the
samples of a slot). Of each bias, a ticket takes 1 from the first weight and its number + 1 from the
second. What a server has acknowledged is a line in ACKS: chunk and ticket. Whatever goes wrong ends
the process; whoever started it starts it again.

    counter.py COORDINATOR CERTS FOLDER ACKS SLOTS SAMPLES    FOLDER holds roost_pb2.py, made by
    protoc; slots of a step, samples of a slot
"""
import hashlib
import queue
import struct
import sys
import threading

import grpc

COORDINATOR, CERTS, FOLDER, ACKS = sys.argv[1:5]
SLOTS, SAMPLES = map(int, sys.argv[5:7])
sys.path.insert(0, FOLDER)
import roost_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position

WAIT_S = 20


def read(name):
    with open(f"{CERTS}/{name}", "rb") as file:
        return file.read()


CREDENTIALS = grpc.ssl_channel_credentials(read("ca.crt"), read("worker.key"), read("worker.crt"))


class Stream:
    """A two-way stream: send() any time, receive() the next message."""

    def __init__(self, address, path, request, reply):
        self.outbox = queue.Queue()
        method = grpc.secure_channel(address, CREDENTIALS).stream_stream(
            path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString)
        self.replies = method(iter(self.outbox.get, None), timeout=600)

    def send(self, message):
        self.outbox.put(message)

    def receive(self):
        return next(self.replies)


class Server:
    """One that has chunks: its stream, and the boot that it said."""

    def __init__(self, address, member, chunks):
        self.chunks = chunks
        self.stream = Stream(address, "/roost.v1.Shard/Exchange", pb.ToShard, pb.FromShard)
        self.stream.send(pb.ToShard(hello=pb.Hello(member=member)))
        self.boot = self.stream.receive().welcome.boot


class Counter:
    def __init__(self, acks):
        self.acks = acks
        self.channel = grpc.secure_channel(COORDINATOR, CREDENTIALS)
        described = self.call("Describe", pb.DescribeRequest(with_chunks=True), pb.DescribeReply)
        self.run = described.run
        joined = self.call("Join", pb.JoinRequest(wire_version=1, name="counter", device="python",
                                                  fingerprint=hashlib.sha256(b"python").digest()), pb.JoinReply)
        self.member, self.generation = joined.member, joined.generation
        self.sequence = self.last_id = 0
        self.keep_alive(joined.heartbeat_ms / 1000)
        self.servers = [Server(server.address, self.member, [chunk for part in described.ranges if part.server == number
                                                             for chunk in range(part.first, part.first + part.count)])
                        for number, server in enumerate(described.servers)]

    def call(self, name, request, reply):
        method = self.channel.unary_unary(f"/roost.v1.Cluster/{name}", response_deserializer=reply.FromString,
                                          request_serializer=type(request).SerializeToString)
        return method(request, timeout=WAIT_S)

    def keep_alive(self, seconds):
        control = Stream(COORDINATOR, "/roost.v1.Cluster/Member", pb.MemberReport, pb.MemberNotice)

        def beat():
            while True:
                control.send(pb.MemberReport(member=self.member))
                threading.Event().wait(seconds)

        threading.Thread(target=beat, daemon=True).start()

    def next_id(self):
        self.last_id += 1
        return self.last_id

    def pull(self, ticket, server):
        """The version of each of the server's chunks."""
        wanted = [number for number in server.chunks if self.run.chunks[number].parameter != "loss"]
        versions = {}
        if wanted:
            server.stream.send(pb.ToShard(pull=pb.Pull(id=self.next_id(), generation=ticket.generation, chunks=wanted,
                                                       newest=True, attempt=ticket.attempt)))
        while len(versions) < len(wanted):
            message = server.stream.receive()
            if message.WhichOneof("header") != "weights":
                raise RuntimeError(f"pull: {message}")
            versions.update(zip(message.weights.chunks, message.weights.versions))
        return versions

    def gradient(self, chunk, number):
        values = [0.0] * (chunk.rows * chunk.cols)
        if chunk.parameter.endswith(".bias"):
            values[0:2] = [1.0, number + 1.0]
        if chunk.parameter == "loss":
            values[1] = float(SAMPLES)
        return struct.pack(f"<{len(values)}f", *values)

    def push(self, ticket, number, server, versions):
        """False: the ticket is to be dropped."""
        entries, payload = [], b""
        for chunk in server.chunks:
            part = self.gradient(self.run.chunks[chunk], number)
            entries.append(pb.PushEntry(chunk=chunk, bytes=len(part), version=versions.get(chunk, 0)))
            payload += part
        server.stream.send(pb.ToShard(push=pb.Push(id=self.next_id(), generation=ticket.generation, step=ticket.step,
                                                   node=ticket.node, entries=entries, attempt=ticket.attempt,
                                                   boot=server.boot, scale=1.0), payload=payload))
        answer = server.stream.receive()
        counted = server.chunks if answer.ack.code == 0 else server.chunks[:answer.ack.first_refused]
        self.acks.write("".join(f"{chunk} {number}\n" for chunk in counted))
        self.acks.flush()
        return answer.ack.code

    def count(self, ticket):
        number = ticket.step * SLOTS + ticket.node.index
        versions = [self.pull(ticket, server) for server in self.servers]
        code = 0
        for server, pulled in zip(self.servers, versions):
            if code == 0 and server.chunks:
                code = self.push(ticket, number, server, pulled)
        self.call("Complete", pb.CompleteRequest(member=self.member, ticket=ticket, outcome=code,
                                                 boots=[server.boot for server in self.servers]), pb.CompleteReply)

    def work(self):
        while True:
            self.sequence += 1
            answer = self.call("Acquire", pb.AcquireRequest(member=self.member, generation=self.generation,
                                                            sequence=self.sequence, wait_ms=1000), pb.AcquireReply)
            if answer.result == pb.ACQUIRE_END:
                return
            if answer.result == pb.ACQUIRE_TICKET:
                self.count(answer.ticket)


with open(ACKS, "a", encoding="utf-8") as file_of_acks:
    Counter(file_of_acks).work()
