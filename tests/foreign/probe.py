"""Raw gRPC calls that no worker of ours would make: probe.py COORDINATOR CERTS ROLE COMMAND

Prints one line of what came back. Commands: health, reflection, oversize, garbage, no-member,
wire-version."""
import itertools
import sys
import threading

import grpc

ADDRESS, CERTS, ROLE, COMMAND = sys.argv[1:5]
MIB = 1 << 20


def read(name):
    with open(f"{CERTS}/{ROLE}/{name}", "rb") as file:
        return file.read()


def same(message):
    return message


credentials = grpc.ssl_channel_credentials(read("ca.crt"), read(f"{ROLE}.key"), read(f"{ROLE}.crt"))
channel = grpc.secure_channel(ADDRESS, credentials, options=[("grpc.max_send_message_length", -1)])


def unary(path, request):
    return channel.unary_unary(path, request_serializer=same, response_deserializer=same)(request, timeout=10)


def stream(path, *requests, answers):
    """The first answers; our half stays open until they are here, because closing it ends the stream."""
    enough = threading.Event()

    def ours():
        yield from requests
        enough.wait(10)

    call = channel.stream_stream(path, request_serializer=same, response_deserializer=same)(ours(), timeout=10)
    try:
        return list(itertools.islice(call, answers))
    finally:
        enough.set()


HELLO = b"\x0a\x02\x08\x01"  # ToShard{hello{member: 1}}, without a secret
# ToShard{push{id: 1, generation: 1, entries: [{chunk: 999999, bytes: 4}]}, payload: 4 bytes}
UNKNOWN = b"\x12\x0c\x08\x01\x10\x01\x32\x06\x08\xbf\x84\x3d\x18\x04" + b"\x7a\x04" + bytes(4)
CALLS = {
    "health": lambda: unary("/grpc.health.v1.Health/Check", b"").hex(),
    "reflection": lambda: stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b"\x3a\x01*", answers=1)[0],
    "reflection-alpha": lambda: stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"\x3a\x01*", answers=1)[0],
    "oversize": lambda: stream("/roost.v1.Shard/Exchange", HELLO, b"\x7a\x80\x80\x80\x01" + bytes(2 * MIB), answers=2),
    "garbage": lambda: stream("/roost.v1.Shard/Exchange", b"\xff\xff\xff\xff", answers=1),
    "no-member": lambda: stream("/roost.v1.Shard/Exchange", HELLO, UNKNOWN, answers=2),
    "wire-version": lambda: unary("/roost.v1.Cluster/Join", b"\x08\x63"),
}

try:
    print("answer", CALLS[COMMAND]())
except grpc.RpcError as error:
    print("error", error.code().name, error.details())
