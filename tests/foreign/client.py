"""A worker that shares no code with roost: grpcio, messages from roost.proto, gradients by PyTorch.

Joins a run of an `mlp` on served data (`data: {serve: true}`, `numerics: any`), computes tickets
until the run is over, and prints the loss of each as a line of JSON.

    client.py COORDINATOR CERTS FOLDER    FOLDER holds roost_pb2.py, made by protoc
"""
import json
import sys

import torch

COORDINATOR, CERTS, FOLDER = sys.argv[1:4]
sys.path.insert(0, FOLDER)
import roost_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position
from member import Member  # noqa: E402  pylint: disable=wrong-import-position


class Worker(Member):
    def pull(self, ticket):
        """The model's parameters, by name, as (rows, cols) tensors that want gradients."""
        parameters = {}
        for chunk in self.run.chunks:
            rows, cols = parameters.get(chunk.parameter, (0, 0))
            parameters[chunk.parameter] = max(rows, chunk.row + chunk.rows), max(cols, chunk.col + chunk.cols)
        weights = {name: torch.zeros(shape) for name, shape in parameters.items() if name != "loss"}
        for server, wanted in self.portions(self.weights):
            server.stream.send(pb.ToShard(pull=pb.Pull(id=self.next_id(), generation=ticket.generation,
                                                       version=ticket.version, chunks=wanted)))
            missing = set(wanted)
            while missing:
                message = server.stream.receive()
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
            request = pb.SamplesRequest(run=self.run.run, ticket=ticket, slot=slot, member=self.member, secret=self.secret)
            reply = self.call("Samples", request, pb.SamplesReply)
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
        for server, numbers in self.portions(lambda server: server.chunks):
            entries, payload = [], b""
            for number in numbers:
                chunk = self.run.chunks[number]
                block = gradients[chunk.parameter][chunk.row:chunk.row + chunk.rows, chunk.col:chunk.col + chunk.cols]
                part = block.contiguous().numpy().tobytes()
                entries.append(pb.PushEntry(chunk=number, part=0, bytes=len(part)))
                payload += part
            server.stream.send(pb.ToShard(push=pb.Push(id=self.next_id(), generation=ticket.generation, step=ticket.step,
                                                       node=ticket.node, entries=entries, tickets=[ticket]),
                                       payload=payload))
            answer = server.stream.receive()
            assert answer.ack.code == 0, f"push refused: {answer}"

    def work(self):
        for ticket in self.tickets():
            weights = self.pull(ticket)
            sums = self.compute(ticket, weights)
            done = pb.CompleteRequest(member=self.member, secret=self.secret, ticket=ticket)
            if ticket.kind == pb.TICKET_TRAIN:
                self.push(ticket, weights, sums)
                print(json.dumps({"step": ticket.step, "loss": sums[0] / sums[1]}), flush=True)
            else:
                done.loss_sum, done.sample_count, done.correct_count = sums
            self.call("Complete", done, pb.CompleteReply)


Worker(COORDINATOR, CERTS, "foreign").work()
