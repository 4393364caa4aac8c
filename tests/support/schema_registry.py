"""A server that speaks the documented HTTP interface of Confluent's Schema Registry, as far as readers use it."""

import base64
import json
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class Registry:
    """The schemas of a running server.

    Attributes
    ----------
    asked : list of str
        The paths of all requests.
    trouble : int or None
        A status with which every request is answered.
    login : str or None
        ``user:password`` that requests must have.
    knows_guids : bool
        Whether it is of a version with ``/schemas/guids``.
    """

    def __init__(self):
        self.schemas, self.subjects, self.asked = {}, {}, []
        self.trouble = self.login = None
        self.knows_guids = True
        self.authorization = []

    def add(self, number, schema, kind="AVRO", references=(), subject=None):
        """Register a schema; returns its GUID."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        guid = str(uuid.uuid5(uuid.NAMESPACE_OID, text))
        answer = {"schema": text, "guid": guid}
        if kind != "AVRO":
            answer["schemaType"] = kind
        if references:
            answer["references"] = [{"name": n, "subject": s, "version": v} for n, s, v in references]
        self.schemas[f"/schemas/ids/{number}"] = self.schemas[f"/schemas/guids/{guid}"] = answer
        if subject is not None:
            versions = [path for path in self.subjects if path.startswith(f"/subjects/{subject}/")]
            path = f"/subjects/{subject}/versions/{len(versions) + 1}"
            self.subjects[path] = answer | {"subject": subject, "version": len(versions) + 1, "id": number}
        return guid

    def answer(self, path):
        if self.trouble is not None:
            return self.trouble, {"error_code": self.trouble * 100 + 1, "message": "Error in the backend data store"}
        if path == "/schemas/types":
            return 200, ["JSON", "PROTOBUF", "AVRO"]
        if not self.knows_guids and path.startswith("/schemas/guids/"):
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        found = self.schemas.get(path) or self.subjects.get(unquote(path))
        if found is not None:
            return 200, found
        code = 40403 if path.startswith("/schemas/") else 40401 if path.startswith("/subjects/") else 404
        return 404, {"error_code": code, "message": "not found"}


@contextmanager
def schema_registry(port=0):
    """Run a server; yields its URL and its `Registry`."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            registry.asked.append(self.path)
            registry.authorization.append(self.headers.get("Authorization"))
            wanted = registry.login and "Basic " + base64.b64encode(registry.login.encode()).decode()
            if registry.login and self.headers.get("Authorization") != wanted:
                status, document = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, document = registry.answer(self.path)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
