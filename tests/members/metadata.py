"""A cloud's metadata service on loopback, as aws, gcp or azure is one, or none of them."""
import http.server
import threading


class Metadata:
    """`answers` maps a path (without its query) to what it answers; a path that is not there is 404.
    `asked` has every question: method, path, status. While it is `broken` it answers 503, and so it does to the
    first `late` questions."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.answers = {
            "aws": {"/latest/meta-data/instance-id": "i-0123456789abcdef0"},
            "gcp": {"/computeMetadata/v1/instance/id": "4711",
                    "/computeMetadata/v1/instance/preempted": "FALSE"},
            "azure": {"/metadata/instance/compute/name": "trainer_7",
                      "/metadata/scheduledevents": '{"DocumentIncarnation": 1, "Events": []}'},
        }.get(cloud, {})
        self.token = "first=="
        self.broken = False
        self.late = 0
        self.asked = []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # pylint: disable=invalid-name
                service.answer(self)

            do_PUT = do_GET

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # who asks hangs up on an answer that is too long
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def judge(self, request, path, query):
        """Status and body, as strict as the cloud is."""
        if self.broken or len(self.asked) < self.late:
            return 503, ""
        if self.cloud == "aws" and path == "/latest/api/token":
            ttl = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            return (200, self.token) if request.command == "PUT" and ttl.isdigit() else (400, "")
        if request.command != "GET":
            return 405, ""
        if self.cloud == "aws" and request.headers.get("X-aws-ec2-metadata-token") != self.token:
            return 401, ""
        if self.cloud == "gcp" and request.headers.get("Metadata-Flavor") != "Google":
            return 403, ""
        if self.cloud == "azure" and (request.headers.get("Metadata") != "true" or "api-version=" not in query):
            return 400, ""
        return (200, self.answers[path]) if path in self.answers else (404, "")

    def answer(self, request):
        path, _, query = request.path.partition("?")
        status, body = self.judge(request, path, query)
        self.asked.append((request.command, path, status))
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body.encode())

    def count(self, path, status=200):
        return sum(1 for _, asked, code in list(self.asked) if asked == path and code == status)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
