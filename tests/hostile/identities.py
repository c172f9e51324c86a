"""What each method answers to whom, by the caller's certificate alone: every method that the daemon's own
reflection names is called with an empty message.

    identities.py ADDRESS CERTS OTHER FUTURE ENDING END REVOKED FOLDER    one JSON object: method -> answers, in the order of COLUMNS

CERTS and OTHER hold the folders of two CAs' roles; FUTURE, ENDING and REVOKED a worker's certificate: one whose time has not come, one that
is valid until END (Unix seconds), and one that servers take no longer. FOLDER holds reflection_pb2.py, made by protoc."""
import json
import os
import re
import sys
import time

import grpc
from google.protobuf import descriptor_pb2
from grpc.experimental import session_cache

ADDRESS, CERTS, OTHER, FUTURE, ENDING, END, REVOKED, FOLDER = sys.argv[1:9]
sys.path.insert(0, FOLDER)
import reflection_pb2 as pb  # noqa: E402  pylint: disable=wrong-import-position

REFLECTION = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
CALL_S = 10
EMPTY = b""

with open("docs/errors.md", encoding="utf-8") as errors:
    NAMES = {int(number): name for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", errors.read(), re.M)}


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def secure(certs, role, options=None):
    key, certificate = (read(certs, role, f"{role}.key"), read(certs, role, f"{role}.crt")) if role else (None, None)
    credentials = grpc.ssl_channel_credentials(read(CERTS, "worker", "ca.crt"), key, certificate)
    return grpc.secure_channel(ADDRESS, credentials, options=options)


SESSIONS = (("grpc.ssl_session_cache", session_cache.ssl_session_cache_lru(1)),)
COLUMNS = [lambda: secure(CERTS, None), lambda: grpc.insecure_channel(ADDRESS), lambda: secure(OTHER, "operator"),
           lambda: secure(ENDING, "worker"), lambda: secure(FUTURE, "worker"), lambda: secure(ENDING, "worker", SESSIONS),
           lambda: secure(REVOKED, "worker"), lambda: secure(CERTS, "worker"), lambda: secure(CERTS, "server"), lambda: secure(CERTS, "operator")]


def ask(channel, **question):
    method = channel.stream_stream(f"/{REFLECTION}", response_deserializer=pb.ServerReflectionResponse.FromString,
                                   request_serializer=pb.ServerReflectionRequest.SerializeToString)
    return next(method(iter([pb.ServerReflectionRequest(**question)]), timeout=CALL_S))


def methods():
    """As the daemon names them: path -> whether it is a stream."""
    channel, found = secure(CERTS, "operator"), {}
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
    service, method = path.rsplit("/", 1)
    return f"{service.rsplit('.', 1)[1]}.{method}"


def begin_session():
    """While the certificate is valid; what was begun so may not outlive it."""
    channel = secure(ENDING, "worker", SESSIONS)
    seen = answer_of(channel, "roost.v1.Cluster/Describe", False)
    assert seen == "admitted" and time.time() < float(END), f"it is valid still: {seen}"
    channel.close()


begin_session()
time.sleep(max(0.0, float(END) + 1 - time.time()))  # no event: a certificate ends at a moment of the clock, and nobody says so
channels = [make() for make in COLUMNS]
print(json.dumps({short(path): [answer_of(channel, path, streams) for channel in channels]
                  for path, streams in methods().items()}))
sys.stdout.flush()
os._exit(0)
