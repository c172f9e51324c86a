"""A worker that counts: every ticket's gradient is an integer, so that the weights say exactly which
tickets were counted, and how often.

Joins an async run of an `mlp` (`data: {serve: true}`, `numerics: any`, plain SGD whose lr is the
samples of a slot). Of each bias, a ticket takes 1 from the first weight and its number + 1 from the
second. What a server has acknowledged is a line in ACKS: chunk and ticket. Whatever goes wrong ends
the process; whoever started it starts it again.

    counter.py COORDINATOR CERTS FOLDER ACKS SLOTS SAMPLES    FOLDER holds roost_pb2.py, made by
    protoc; slots of a step, samples of a slot
"""
import os
import struct
import sys

COORDINATOR, CERTS, FOLDER, ACKS = sys.argv[1:5]
SLOTS, SAMPLES = map(int, sys.argv[5:7])
sys.path[:0] = [FOLDER, os.path.join(os.path.dirname(__file__), "../foreign")]
import roost_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position
from member import Member  # noqa: E402  pylint: disable=wrong-import-position


class Counter(Member):
    def __init__(self, acks):
        super().__init__(COORDINATOR, CERTS, "counter")
        self.acks = acks

    def pull(self, ticket, server):
        """The version of each of the server's chunks."""
        wanted, versions = self.weights(server), {}
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
        """What the server answered; 0: it counts."""
        entries, payload = [], b""
        for chunk in server.chunks:
            part = self.gradient(self.run.chunks[chunk], number)
            entries.append(pb.PushEntry(chunk=chunk, bytes=len(part), version=versions.get(chunk, 0)))
            payload += part
        server.stream.send(pb.ToShard(push=pb.Push(id=self.next_id(), generation=ticket.generation, step=ticket.step,
                                                   node=ticket.node, entries=entries, attempt=ticket.attempt,
                                                   boot=server.boot, scale=1.0, tickets=[ticket]), payload=payload))
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
        self.call("Complete", pb.CompleteRequest(member=self.member, secret=self.secret, ticket=ticket, outcome=code,
                                                 boots=[server.boot for server in self.servers]), pb.CompleteReply)

    def work(self):
        for ticket in self.tickets():
            self.count(ticket)


with open(ACKS, "a", encoding="utf-8") as file_of_acks:
    Counter(file_of_acks).work()
