"""A worker that shares no code with roost: grpcio, messages from roost.proto, gradients by PyTorch.

Joins a run of an `mlp` on served data (`data: {serve: true}`, `numerics: any`), computes tickets
until the run is over, and prints the loss of each as a line of JSON.

    client.py COORDINATOR CERTS FOLDER    FOLDER holds roost_pb2.py, made by protoc
"""
import hashlib
import json
import queue
import sys
import threading

import grpc
import torch

COORDINATOR, CERTS, FOLDER = sys.argv[1:4]
sys.path.insert(0, FOLDER)
import roost_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position

WAIT_S = 30


def read(name):
    with open(f"{CERTS}/{name}", "rb") as file:
        return file.read()


CREDENTIALS = grpc.ssl_channel_credentials(read("ca.crt"), read("worker.key"), read("worker.crt"))


def unary(channel, service, name, request, reply):
    method = channel.unary_unary(f"/roost.v1.{service}/{name}", request_serializer=type(request).SerializeToString,
                                 response_deserializer=reply.FromString)
    return method(request, timeout=WAIT_S)


class Stream:
    """A two-way stream: send() any time, receive() the next message."""

    def __init__(self, channel, path, request, reply):
        self.outbox = queue.Queue()
        method = channel.stream_stream(path, request_serializer=request.SerializeToString,
                                       response_deserializer=reply.FromString)
        self.replies = method(iter(self.outbox.get, None))

    def send(self, message):
        self.outbox.put(message)

    def receive(self):
        return next(self.replies)


class Worker:
    def __init__(self):
        self.channel = grpc.secure_channel(COORDINATOR, CREDENTIALS)
        self.description = self.call("Describe", pb.DescribeRequest(with_chunks=True), pb.DescribeReply)
        self.run = self.description.run
        joined = self.call("Join", pb.JoinRequest(wire_version=1, name="foreign", device="pytorch",
                                                  fingerprint=hashlib.sha256(b"pytorch").digest()), pb.JoinReply)
        self.member, self.generation = joined.member, joined.generation
        self.sequence = 0
        self.last_id = 0
        self.keep_alive(joined.heartbeat_ms / 1000)
        self.streams = [self.open(server.address) for server in self.description.servers]

    def call(self, name, request, reply):
        return unary(self.channel, "Cluster", name, request, reply)

    def keep_alive(self, seconds):
        control = Stream(self.channel, "/roost.v1.Cluster/Member", pb.MemberReport, pb.MemberNotice)
        over = threading.Event()

        def beat():
            while not over.is_set():
                control.send(pb.MemberReport(member=self.member))
                over.wait(seconds)

        threading.Thread(target=beat, daemon=True).start()
        self.control = control

    def open(self, address):
        stream = Stream(grpc.secure_channel(address, CREDENTIALS), "/roost.v1.Shard/Exchange", pb.ToShard, pb.FromShard)
        stream.send(pb.ToShard(hello=pb.Hello(member=self.member)))
        assert stream.receive().WhichOneof("header") == "welcome"
        return stream

    def chunks_of(self, server):
        return [chunk for part in self.description.ranges if part.server == server
                for chunk in range(part.first, part.first + part.count)]

    def next_id(self):
        self.last_id += 1
        return self.last_id

    def pull(self, ticket):
        """The model's parameters, by name, as (rows, cols) tensors that want gradients."""
        parameters = {}
        for chunk in self.run.chunks:
            rows, cols = parameters.get(chunk.parameter, (0, 0))
            parameters[chunk.parameter] = max(rows, chunk.row + chunk.rows), max(cols, chunk.col + chunk.cols)
        weights = {name: torch.zeros(shape) for name, shape in parameters.items() if name != "loss"}
        for server, stream in enumerate(self.streams):
            wanted = [number for number in self.chunks_of(server) if self.run.chunks[number].parameter != "loss"]
            if not wanted:
                continue
            stream.send(pb.ToShard(pull=pb.Pull(id=self.next_id(), generation=ticket.generation,
                                                version=ticket.version, chunks=wanted)))
            missing = set(wanted)
            while missing:
                message = stream.receive()
                if message.WhichOneof("header") == "refusal":
                    assert message.refusal.code == 7, f"pull refused: {message.refusal}"  # TOO_EARLY: parked
                    continue
                offset = 0
                for number in message.weights.chunks:
                    chunk = self.run.chunks[number]
                    count = chunk.rows * chunk.cols
                    values = torch.frombuffer(bytearray(message.payload[offset:offset + 4 * count]), dtype=torch.float32)
                    weights[chunk.parameter][chunk.row:chunk.row + chunk.rows,
                                             chunk.col:chunk.col + chunk.cols] = values.view(chunk.rows, chunk.cols)
                    offset += 4 * count
                    missing.remove(number)
        for value in weights.values():
            value.requires_grad_(True)
        return weights

    def samples(self, ticket):
        first = ticket.node.index << ticket.node.level
        for slot in range(first, first + (1 << ticket.node.level)):
            reply = self.call("Samples", pb.SamplesRequest(run=self.run.run, ticket=ticket, slot=slot), pb.SamplesReply)
            inputs = torch.frombuffer(bytearray(reply.inputs), dtype=torch.float32).view(reply.sample_count, -1)
            yield inputs, torch.frombuffer(bytearray(reply.targets), dtype=torch.int32).long()

    def compute(self, ticket, weights):
        """Sum of losses, samples, correct; gradients are left in the weights."""
        total, count, correct = torch.zeros(()), 0, 0
        for inputs, targets in self.samples(ticket):
            layers = len(weights) // 2
            hidden = inputs
            for layer in range(1, layers + 1):
                hidden = hidden @ weights[f"fc{layer}.weight"].T + weights[f"fc{layer}.bias"].T
                if layer < layers:
                    hidden = torch.tanh(hidden)
            total = total + torch.nn.functional.cross_entropy(hidden, targets, reduction="sum")
            count += len(targets)
            correct += int((hidden.argmax(1) == targets).sum())
        if ticket.kind == pb.TICKET_TRAIN:
            total.backward()
        return float(total), count, correct

    def push(self, ticket, weights, sums):
        gradients = {name: value.grad for name, value in weights.items()}
        gradients["loss"] = torch.tensor([*sums, 0.0]).view(4, 1)
        for server, stream in enumerate(self.streams):
            entries, payload = [], b""
            for number in self.chunks_of(server):
                chunk = self.run.chunks[number]
                block = gradients[chunk.parameter][chunk.row:chunk.row + chunk.rows, chunk.col:chunk.col + chunk.cols]
                part = block.contiguous().numpy().tobytes()
                digest = int.from_bytes(hashlib.sha256(part).digest()[:8], "little")
                entries.append(pb.PushEntry(chunk=number, part=0, bytes=len(part), digest=digest))
                payload += part
            stream.send(pb.ToShard(push=pb.Push(id=self.next_id(), generation=ticket.generation, step=ticket.step,
                                                node=ticket.node, entries=entries), payload=payload))
            answer = stream.receive()
            assert answer.ack.code == 0, f"push refused: {answer}"

    def work(self):
        while True:
            self.sequence += 1
            answer = self.call("Acquire", pb.AcquireRequest(member=self.member, generation=self.generation,
                                                            sequence=self.sequence, wait_ms=1000), pb.AcquireReply)
            if answer.result == pb.ACQUIRE_END:
                return
            if answer.result != pb.ACQUIRE_TICKET:
                continue
            ticket = answer.ticket
            weights = self.pull(ticket)
            sums = self.compute(ticket, weights)
            done = pb.CompleteRequest(member=self.member, ticket=ticket)
            if ticket.kind == pb.TICKET_TRAIN:
                self.push(ticket, weights, sums)
                print(json.dumps({"step": ticket.step, "loss": sums[0] / sums[1]}), flush=True)
            else:
                done.loss_sum, done.sample_count, done.correct_count = sums
            self.call("Complete", done, pb.CompleteReply)


Worker().work()
