"""What each method answers to whom, by the caller's certificate alone: every method that the daemon's own
reflection names is called with an empty message, and the one of a worker's port.

    identities.py ADDRESS WORKER CERTS OTHER FUTURE ENDING END REVOKED FOLDER    one JSON object: method -> answers, in the order of COLUMNS

ADDRESS is the daemon's, WORKER that of a worker's port. CERTS and OTHER hold the folders of two CAs' roles; FUTURE, ENDING and REVOKED a
worker's certificate: one whose time has not come, one that is valid until END (Unix seconds), and one that servers take no longer. FOLDER
holds reflection_pb2.py, made by protoc."""
import json
import os
import re
import sys
import time

import grpc
from google.protobuf import descriptor_pb2
from grpc.experimental import session_cache

ADDRESS, WORKER, CERTS, OTHER, FUTURE, ENDING, END, REVOKED, FOLDER = sys.argv[1:10]
sys.path.insert(0, FOLDER)
import reflection_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position

REFLECTION = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
AT_A_WORKER = "roost.v1.Peer/Exchange"
WORKERS_NAME = (("grpc.ssl_target_name_override", "worker.roost.invalid"),)  # of every worker's certificate
CALL_S = 10
EMPTY = b""

with open("docs/errors.md", encoding="utf-8") as errors:
    NAMES = {int(number): name for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", errors.read(), re.M)}


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def secure(address, certs, role, options=()):
    key, certificate = (read(certs, role, f"{role}.key"), read(certs, role, f"{role}.crt")) if role else (None, None)
    credentials = grpc.ssl_channel_credentials(read(CERTS, "worker", "ca.crt"), key, certificate)
    return grpc.secure_channel(address, credentials, options=options + (WORKERS_NAME if address == WORKER else ()))


SESSIONS = {address: (("grpc.ssl_session_cache", session_cache.ssl_session_cache_lru(1)),) for address in (ADDRESS, WORKER)}
COLUMNS = [lambda at: secure(at, CERTS, None), grpc.insecure_channel, lambda at: secure(at, OTHER, "operator"),
           lambda at: secure(at, ENDING, "worker"), lambda at: secure(at, FUTURE, "worker"), lambda at: secure(at, ENDING, "worker", SESSIONS[at]),
           lambda at: secure(at, REVOKED, "worker"), lambda at: secure(at, CERTS, "worker"), lambda at: secure(at, CERTS, "server"),
           lambda at: secure(at, CERTS, "operator")]


def ask(channel, **question):
    method = channel.stream_stream(f"/{REFLECTION}", response_deserializer=pb.ServerReflectionResponse.FromString,
                                   request_serializer=pb.ServerReflectionRequest.SerializeToString)
    return next(method(iter([pb.ServerReflectionRequest(**question)]), timeout=CALL_S))


def methods():
    """As the daemon names them: path -> whether it is a stream."""
    channel, found = secure(ADDRESS, CERTS, "operator"), {}
    for service in ask(channel, list_services="").list_services_response.service:
        answer = ask(channel, file_containing_symbol=service.name).file_descriptor_response
        for described in answer.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(described)
            for listed in file.service:
                if f"{file.package}.{listed.name}" == service.name:
                    found.update({f"{service.name}/{method.name}": method.client_streaming for method in listed.method})
    return found


def answer_of(channel, path, streams):
    """The name of the error that an empty message gets; OK: any answer, also of the method itself."""
    try:
        if streams or path.endswith("/Watch"):
            next(channel.stream_stream(f"/{path}")(iter([EMPTY]), timeout=CALL_S), None)
        else:
            channel.unary_unary(f"/{path}")(EMPTY, timeout=CALL_S)
        return "admitted"
    except grpc.RpcError as error:
        metadata = dict(error.trailing_metadata() or ())
        if error.code() == grpc.StatusCode.UNAVAILABLE and "roost-err" not in metadata:
            return "closed"
        name = NAMES[int(metadata["roost-err"])] if "roost-err" in metadata else error.code().name
        return name if name == "DENIED" else "admitted"


def short(path):
    """Of the older service with its package: its name is the newer one's."""
    service, method = path.rsplit("/", 1)
    package, name = service.rsplit(".", 1)
    return f"{package + '.' if package.endswith('alpha') else ''}{name}.{method}"


def begin_session(address, path, streams):
    """While the certificate is valid; what was begun so may not outlive it."""
    channel = secure(address, ENDING, "worker", SESSIONS[address])
    seen = answer_of(channel, path, streams)
    assert seen == "admitted" and time.time() < float(END), f"it is valid still: {seen}"
    channel.close()


def answers(address, path, streams):
    return [answer_of(channel, path, streams) for channel in CHANNELS[address]]


begin_session(ADDRESS, "roost.v1.Cluster/Describe", False)
begin_session(WORKER, AT_A_WORKER, True)
time.sleep(max(0.0, float(END) + 1 - time.time()))  # no event: a certificate ends at a moment of the clock, and nobody says so
CHANNELS = {address: [make(address) for make in COLUMNS] for address in (ADDRESS, WORKER)}
at_a_worker = {f"{short(AT_A_WORKER)} at a worker": answers(WORKER, AT_A_WORKER, True)}  # before StopRun is asked, and obeyed
print(json.dumps({short(path): answers(ADDRESS, path, streams) for path, streams in methods().items()} | at_a_worker))
sys.stdout.flush()
os._exit(0)
