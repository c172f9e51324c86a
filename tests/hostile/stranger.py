"""Somebody with a worker's certificate and no good will: what every method answers, and attacks that go on
for a while. No line of roost; member numbers are guessed, as they are no secret.

    stranger.py COORDINATOR CERTS FOLDER table             one JSON object: method -> four answers
    stranger.py COORDINATOR CERTS FOLDER ATTACK SECONDS    "begins", and in the end one JSON object: answer -> how often
    stranger.py COORDINATOR CERTS FOLDER frame SECONDS STEP MEMBER...    the same, of a run that lets it not join
    stranger.py WORKER CERTS FOLDER neighbour STEP MEMBER  the answers to who asks a worker for values of steps after that one: as
                                                           nobody, and as the member that is its neighbour

FOLDER holds roost_pb2.py, made by protoc. docs/security.md says what is expected."""
import collections
import json
import os
import re
import struct
import sys
import time

import grpc

COORDINATOR, CERTS, FOLDER, COMMAND = sys.argv[1:5]
sys.path.insert(0, FOLDER)
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../foreign"))
import roost_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position
from member import Member, Stream  # noqa: E402  pylint: disable=wrong-import-position

with open("docs/errors.md", encoding="utf-8") as errors:
    NAMES = {int(number): name for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", errors.read(), re.M)}

NOTHING = "–"  # the method asks for no such thing
GIVEN_BACK = 9 # an outcome that is not OK
GUESSES = 8    # members that are tried: their numbers count up within a coordinator's term


def name_of(error):
    metadata = dict(error.trailing_metadata() or ())
    return NAMES[int(metadata["roost-err"])] if "roost-err" in metadata else error.code().name


def answer_of(call):
    """The name of the error that a call ends with; OK."""
    try:
        call()
        return "OK"
    except grpc.RpcError as error:
        return name_of(error)


class Stranger(Member):
    """Joins, as anybody with the certificate may, and then claims to be others."""

    def unary(self, name, request):
        reply = getattr(pb, self.methods()[f"Cluster.{name}"].output_type.name)
        return answer_of(lambda: self.call(name, request, reply))

    @staticmethod
    def methods():
        return {f"{service.name}.{method.name}": method for service in pb.DESCRIPTOR.services_by_name.values()
                for method in service.methods}

    def member_stream(self, member, secret):
        def call():
            stream = Stream(self.channel, "/roost.v1.Cluster/Member", pb.MemberReport, pb.MemberNotice)
            stream.send(pb.MemberReport(member=member, secret=secret))
            stream.receive()
        return answer_of(call)

    def target(self):
        """The first server that has weights: all pushes and pulls go to it."""
        return next(server for server in self.servers if self.weights(server))

    def exchange(self, member, secret, message):
        """What the target answers to one message of such a stream."""
        server = self.target()
        stream = Stream(server.channel, "/roost.v1.Shard/Exchange", pb.ToShard, pb.FromShard)
        stream.send(pb.ToShard(hello=pb.Hello(member=member, secret=secret)))
        stream.receive()
        stream.send(message)
        answer = stream.receive()
        stream.end()
        return NAMES[answer.ack.code if answer.WhichOneof("header") == "ack" else answer.refusal.code]

    def push(self, ticket, tickets, value=1e6):
        """All of the target's chunks, each gradient `value`."""
        entries, payload = [], b""
        for number in self.weights(self.target()):
            chunk = self.run.chunks[number]
            part = struct.pack("<f", value) * (chunk.rows * chunk.cols)
            entries.append(pb.PushEntry(chunk=number, bytes=len(part)))
            payload += part
        return pb.ToShard(push=pb.Push(id=1, generation=ticket.generation, step=ticket.step, node=ticket.node,
                                       entries=entries, tickets=tickets), payload=payload)

    def pull(self, version):
        return pb.ToShard(pull=pb.Pull(id=self.next_id(), generation=self.generation, version=version,
                                       chunks=self.weights(self.target())[:1]))

    def newest(self, ticket):
        """async: the version of each of the target's chunks, as its weights are pulled for the ticket."""
        target, pull, versions = self.target(), self.pull(0), {}
        pull.pull.newest, pull.pull.attempt, pull.pull.chunks[:] = True, ticket.attempt, self.weights(target)
        target.stream.send(pull)
        while len(versions) < len(pull.pull.chunks):
            weights = target.stream.receive().weights
            versions.update(zip(weights.chunks, weights.versions))
        return versions

    def answers_to(self, pull):
        """One after the other; a pull that is parked has two. Between them come those of pulls that waited."""
        stream = self.target().stream
        stream.send(pull)
        while True:
            answer = stream.receive()
            kind = answer.WhichOneof("header")
            said = getattr(answer, kind)
            if said.id == pull.pull.id:
                yield NAMES[said.code] if kind == "refusal" else kind

    def wait_for_weights(self, version):
        """As a worker does before it computes: then the target has opened the step, too."""
        return next(answer for answer in self.answers_to(self.pull(version)) if answer != "TOO_EARLY")

    def ticket(self):
        """One of training: a piece of validation, taken beside it, is given back."""
        for ticket in self.tickets():
            if ticket.kind == pb.TICKET_TRAIN:
                return ticket
            self.give_back(ticket)
        raise EOFError("the run is over")

    def give_back(self, ticket):
        """So that others may compute it."""
        return self.unary("Complete", pb.CompleteRequest(member=self.member, secret=self.secret, ticket=ticket,
                                                         outcome=GIVEN_BACK))

    def step(self):
        """The step that is open, as near as a stranger can know: that of a ticket of its own."""
        return self.ticket().step


class Outsider(Stranger):
    """Knows what anybody with the certificate is told, and is no member."""

    def join(self, _):
        self.member, self.generation, self.secret = 0, 1, bytes(16)


def without_grant(ticket):
    bare = pb.Ticket()
    bare.CopyFrom(ticket)
    bare.ClearField("grant")
    return bare


def denied(stranger, name):
    """A method of operators or servers, or of a worker's port, asked with a worker's certificate."""
    method = Stranger.methods()[name]
    request, reply = getattr(pb, method.input_type.name), getattr(pb, method.output_type.name)
    path = f"/roost.v1.{name.replace('.', '/')}"
    if name in ("Cluster.Serve", "Peer.Exchange"):
        def call():
            stream = Stream(stranger.channel, path, request, reply)
            stream.send(request())
            stream.receive()
        return answer_of(call)
    unary = stranger.channel.unary_unary(path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString)
    return answer_of(lambda: unary(request(), timeout=30))


def table():
    """Of each method: without the secret, with another's, without a grant, with another's grant."""
    me, other = Stranger(COORDINATOR, CERTS, "stranger"), Stranger(COORDINATOR, CERTS, "other")
    mine, theirs = me.ticket(), other.ticket()
    secrets = (b"", me.secret)

    def claims(call):
        return [call(secret) for secret in secrets]

    def join(secret):
        return me.unary("Join", pb.JoinRequest(wire_version=2, name="again", device="python", fingerprint=bytes(32),
                                               previous_member=other.member, previous_secret=secret))

    def complete(member, secret, ticket):
        return me.unary("Complete", pb.CompleteRequest(member=member, secret=secret, ticket=ticket))

    rows = {
        "Cluster.Describe": [NOTHING] * 4,
        "Cluster.Products": [NOTHING] * 4,
        "Cluster.Join": claims(join) + [NOTHING] * 2,
        "Cluster.Member": claims(lambda secret: me.member_stream(other.member, secret)) + [NOTHING] * 2,
        "Cluster.Acquire": claims(lambda secret: me.unary("Acquire", pb.AcquireRequest(
            member=other.member, secret=secret, generation=me.generation, sequence=99))) + [NOTHING] * 2,
        "Cluster.Complete": claims(lambda secret: complete(other.member, secret, theirs)) +
        [complete(me.member, me.secret, ticket) for ticket in (without_grant(mine), theirs)],
        "Cluster.Leave": claims(lambda secret: me.unary("Leave", pb.LeaveRequest(
            member=other.member, secret=secret, reason="forged"))) + [NOTHING] * 2,
        "Cluster.Samples": claims(lambda secret: me.unary("Samples", pb.SamplesRequest(
            run=me.run.run, ticket=theirs, member=other.member, secret=secret))) + [NOTHING] * 2,
        "Shard.Exchange": claims(lambda secret: me.exchange(other.member, secret, me.push(theirs, [theirs]))) +
        [me.exchange(me.member, me.secret, me.push(mine, [ticket])) for ticket in (without_grant(mine), theirs)],
    }
    for name in ("StartRun", "StopRun", "Checkpoint", "Drain", "Status", "Serve"):
        rows[f"Cluster.{name}"] = [denied(me, f"Cluster.{name}")] * 4
    rows["Shard.Transfer"] = [denied(me, "Shard.Transfer")] * 4
    rows["Peer.Exchange"] = [denied(me, "Peer.Exchange")] * 4
    missing = sorted(set(Stranger.methods()) - set(rows))
    assert not missing, f"methods that the table lacks: {missing}"
    assert other.member_stream(other.member, other.secret) == "OK", "the other is a member still"
    return rows


# ---- attacks ----

def guesses(stranger):
    """Members before and after this one, in its coordinator's term."""
    term = stranger.member >> 32
    return [term << 32 | serial for serial in range(1, GUESSES + 1) if term << 32 | serial != stranger.member]


def zombie(stranger, ticket, member):
    """Gradients of 1e6 for a step that is open, from a member that somebody else is."""
    yield stranger.exchange(member, stranger.secret, stranger.push(ticket, [ticket]))
    yield stranger.exchange(member, stranger.secret, stranger.push(ticket, []))


def nan(stranger, ticket, member):
    """Skips every step, if it counted."""
    yield stranger.exchange(member, b"", stranger.push(ticket, [], float("nan")))


def poison(stranger, ticket, _):
    """NaN as the gradient of its own async ticket, which it says is finite; scales that clipping cannot give."""
    versions = stranger.newest(ticket)
    for scale in (-1, 2, 1):
        message = stranger.push(ticket, [ticket], float("nan"))
        message.push.attempt, message.push.boot, message.push.scale = ticket.attempt, stranger.target().boot, scale
        for entry in message.push.entries:
            entry.version = versions[entry.chunk]
        yield stranger.exchange(stranger.member, stranger.secret, message)


def spy(stranger, ticket, member):
    """The weights, without ever joining."""
    yield stranger.exchange(member, b"", stranger.pull(ticket.version))


def evict(stranger, ticket, member):
    """Ends others' memberships."""
    yield stranger.unary("Leave", pb.LeaveRequest(member=member, secret=stranger.secret, reason="forged"))
    yield stranger.member_stream(member, stranger.secret)


def complete(stranger, ticket, member):
    """Calls every slot of the step done, so that nobody computes it."""
    for slot in range(8):
        claim = pb.Ticket()
        claim.CopyFrom(ticket)
        claim.node.level, claim.node.index = 0, slot
        yield stranger.unary("Complete", pb.CompleteRequest(member=member, secret=stranger.secret, ticket=claim))
        if not (ticket.node.level == 0 and ticket.node.index == slot):
            yield stranger.unary("Complete", pb.CompleteRequest(member=stranger.member, secret=stranger.secret, ticket=claim))


def validation(stranger, ticket, _):
    """Losses of -1e300, and such as can be, of pieces that it was not granted."""
    claim = pb.Ticket(kind=pb.TICKET_VALIDATE, generation=ticket.generation, step=ticket.step, version=ticket.version,
                      member=stranger.member, grant=ticket.grant)
    for piece in range(4):
        claim.node.index = piece
        for loss, count in ((-1e300, 1 << 63), (1e-9, 4)):
            yield stranger.unary("Complete", pb.CompleteRequest(member=stranger.member, secret=stranger.secret, ticket=claim,
                                                                loss_sum=loss, sample_count=count))


def replay(stranger, ticket, _):
    """Brings other slots and other steps under the one ticket that it was granted."""
    for shift in range(1, 4):
        other = pb.Ticket()
        other.CopyFrom(ticket)
        other.node.index = (ticket.node.index + shift) % 8
        yield stranger.exchange(stranger.member, stranger.secret, stranger.push(other, [ticket]))
        yield stranger.exchange(stranger.member, stranger.secret, stranger.push(other, [other]))
        other.CopyFrom(ticket)
        other.step += shift
        yield stranger.exchange(stranger.member, stranger.secret, stranger.push(other, [ticket]))


def rows(stranger, ticket, _):
    """Brings rows under its own ticket that the chunk does not have, twice, not at all, or of other lengths; the loss in rows."""
    stranger.wait_for_weights(ticket.version)
    server = stranger.target()
    number = stranger.weights(server)[0]
    chunk = stranger.run.chunks[number]
    row, loss = 4 * chunk.cols, len(stranger.run.chunks) - 1
    claims = [(number, True, [chunk.rows], row), (number, True, [0, 1 << 31], 2 * row), (number, True, [1, 1], 2 * row),
              (number, True, [1, 0], 2 * row), (number, False, [0], row), (number, True, [0], row + 4), (number, True, [0], 0),
              (number, True, [], row), (number, True, list(range(chunk.rows + 1)), (chunk.rows + 1) * row)]
    if loss in server.chunks:
        claims += [(loss, True, [0], 4), (loss, True, [], 0)]
    for name, sparse, which, count in claims:
        entry = pb.PushEntry(chunk=name, bytes=count, sparse=sparse, rows=which)
        message = pb.ToShard(push=pb.Push(id=1, generation=ticket.generation, step=ticket.step, node=ticket.node,
                                          entries=[entry], tickets=[ticket]), payload=bytes(count))
        try:
            yield stranger.exchange(stranger.member, stranger.secret, message)
        except grpc.RpcError as error:
            yield name_of(error)


def crowd(stranger, _, member):
    """Joins under one name after the other, with one certificate."""
    for number in range(100):
        yield stranger.unary("Join", pb.JoinRequest(wire_version=2, name=f"crowd-{member}-{number}", device="python", fingerprint=bytes(32)))


def spoof(stranger, _, __):
    """Names, devices and reasons that forge lines of a log or a terminal, and such as are not UTF-8."""
    forged = [f"w{text}2026-11-22T00:00:00.000Z error forged" for text in ("\n", "\r", "\x1b[2J", "\u009b2J", "\u202e", "\u2028")]
    for text in forged:
        yield stranger.unary("Join", pb.JoinRequest(wire_version=2, name=text, device="python", fingerprint=bytes(32)))
        yield stranger.unary("Join", pb.JoinRequest(wire_version=2, name="spoof", device=text, fingerprint=bytes(32)))
        yield stranger.unary("Leave", pb.LeaveRequest(member=stranger.member, secret=stranger.secret, reason=text))
    for count in range(60, 70):  # longer than what is kept of a reason, which ends inside a character
        leaving = Stranger(COORDINATOR, CERTS, "é" * 31)
        yield leaving.unary("Leave", pb.LeaveRequest(member=leaving.member, secret=leaving.secret, reason="r" * (count % 2) + "é" * count))
    join = stranger.channel.unary_unary("/roost.v1.Cluster/Join")
    for wrong in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"):
        name = pb.JoinRequest(wire_version=2, name="x" * len(wrong), device="python", fingerprint=bytes(32)).SerializeToString()
        yield answer_of(lambda: join(name.replace(b"x" * len(wrong), wrong), timeout=30))  # pylint: disable=cell-var-from-loop


def beyond(stranger, _, __):
    """Versions that no run reaches."""
    for shift in range(20, 64):
        yield next(stranger.answers_to(stranger.pull(1 << shift)))


def frame(outsider, step, member):
    """Brings two different sums of one name as that member, which would be expelled for wrong bits."""
    ticket = pb.Ticket(kind=pb.TICKET_TRAIN, generation=1, step=step, version=step, member=member, grant=bytes(16))
    for secret in (b"", outsider.secret):
        for value in (1, 2):
            yield outsider.exchange(member, secret, outsider.push(ticket, [ticket], value))


def frame_for(seconds, step, members):
    outsider, answers, until = Outsider(COORDINATOR, CERTS, ""), collections.Counter(), time.monotonic() + seconds
    while time.monotonic() < until:
        for member in members:
            answers.update(frame(outsider, step, member))
        step += 1
    return answers


def hoard(stranger, seconds):
    """Takes every ticket that it can have, brings none, and parks as many pulls as there is room for: what that was answered."""
    answers, version, until = collections.Counter(), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        stranger.sequence += 1
        request = pb.AcquireRequest(member=stranger.member, secret=stranger.secret, generation=stranger.generation,
                                    sequence=stranger.sequence)
        try:
            answer = stranger.call("Acquire", request, pb.AcquireReply)
            answers["ticket" if answer.result == pb.ACQUIRE_TICKET else "WAIT"] += 1
            version = max(version, answer.ticket.version)
        except grpc.RpcError as error:
            answers[NAMES[int(dict(error.trailing_metadata())["roost-err"])]] += 1
        for _ in range(20):
            outcome = next(stranger.answers_to(stranger.pull(version + 10)))
            version += 8 if outcome == "TOO_LATE" else 0
            answers[outcome] += 1
    return answers


def gather(stranger, _, __):
    """Joins anew under another name, takes a ticket with that membership, and brings nothing."""
    name = f"gather-{time.monotonic_ns()}"
    try:
        joined = stranger.call("Join", pb.JoinRequest(wire_version=2, name=name, device="python",
                                                      fingerprint=bytes(32)), pb.JoinReply)
        answer = stranger.call("Acquire", pb.AcquireRequest(member=joined.member, secret=joined.secret, sequence=1,
                                                            generation=joined.generation), pb.AcquireReply)
        yield "ticket" if answer.result == pb.ACQUIRE_TICKET else "WAIT"
    except grpc.RpcError as error:
        yield name_of(error)


ATTACKS = {attack.__name__: attack for attack in (zombie, nan, poison, spy, evict, complete, validation, replay, rows, crowd, spoof, beyond,
                                                      gather, hoard)}


def attack_for(attack, seconds):
    """What was answered, and how often."""
    stranger, answers = Stranger(COORDINATOR, CERTS, "stranger"), collections.Counter()
    if attack == hoard:
        return hoard(stranger, seconds)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ticket = stranger.ticket()
        for member in guesses(stranger):
            answers.update(attack(stranger, ticket, member))
        stranger.give_back(ticket)
    return answers


def lie_for(seconds):
    """Calls its tickets complete and pushes nothing, until it is expelled; then it starts anew."""
    answers, until = collections.Counter(), time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            stranger = Stranger(COORDINATOR, CERTS, "stranger")
            answers.update(lies(stranger, until))
    except grpc.RpcError as error:
        answers.update([name_of(error)])
    return answers


def lies(stranger, until):
    """What Complete answers, while it is a member."""
    while time.monotonic() < until:
        try:
            ticket = stranger.ticket()
        except grpc.RpcError:
            return
        yield stranger.unary("Complete", pb.CompleteRequest(member=stranger.member, secret=stranger.secret, ticket=ticket))


def neighbour_of(member, step):
    """What a worker says to who claims to be that member, when it has the value's lease."""
    def read(ending):
        with open(f"{CERTS}/worker/{ending}", "rb") as file:
            return file.read()
    credentials = grpc.ssl_channel_credentials(read("ca.crt"), read("worker.key"), read("worker.crt"))
    channel = grpc.secure_channel(COORDINATOR, credentials, (("grpc.ssl_target_name_override", "worker.roost.invalid"),))
    stream = Stream(channel, "/roost.v1.Peer/Exchange", pb.ToPeer, pb.FromPeer)
    stream.send(pb.ToPeer(hello=pb.PeerHello(member=member)))
    for doublings in range(8):  # credits; of the steps that are not over yet one comes soon
        later = step + (16 << doublings)
        name = pb.ValueName(generation=1, kind=pb.TICKET_TRAIN, step=later, version=later, boundary=1)
        stream.send(pb.ToPeer(want=pb.Want(id=doublings, name=name)))
    while True:
        answer = stream.receive()
        if answer.WhichOneof("header") != "parked":
            return NAMES[answer.gone.code] if answer.WhichOneof("header") == "gone" else "have"


def neighbour(step, member):
    return [neighbour_of(claimed, step) for claimed in (1, member)]


def what_was_asked():
    if COMMAND == "neighbour":
        return neighbour(int(sys.argv[5]), int(sys.argv[6]))
    if COMMAND == "table":
        return table()
    seconds = float(sys.argv[5])
    print("begins", flush=True)
    if COMMAND == "frame":
        return frame_for(seconds, int(sys.argv[6]), [int(member) for member in sys.argv[7:]])
    return lie_for(seconds) if COMMAND == "lie" else attack_for(ATTACKS[COMMAND], seconds)


print(json.dumps(what_was_asked()))
sys.stdout.flush()
os._exit(0)  # threads of streams wait for more
