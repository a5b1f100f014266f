"""An authorization server on loopback that issues tokens of short life by `client_credentials`."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.ports import LOOPBACK

CLIENT, SECRET = "mirror", "the mirror's secret"
WRONG_ANSWERS = {
    "no status": b"garbage\r\n\r\n",
    "too short": b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    "too deep": b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000,
    "an error": b"HTTP/1.1 500 no\r\n\r\n",
    "an error that is cut off": b"HTTP/1.1 500 no\r\ncontent-length: 99\r\n\r\n{",
    "an error that is too deep": b"HTTP/1.1 400 no\r\n\r\n" + b"[" * 200_000,
    "nothing": b"",
}
"""Answers that are neither a token nor a key set."""


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that answers one request with these bytes."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            # a client that has read enough may reset the connection
            with client, suppress(ConnectionError):
                client.recv(65536)
                client.sendall(answer)
                client.shutdown(socket.SHUT_WR)
                # closed with unread bytes, the connection would be reset before the answer is read
                while client.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://{LOOPBACK}:{server.getsockname()[1]}/keys"
        thread.join()


class TokenServer:
    """Use as a context. `life_s` is the lifetime of a token, `refusal` an HTTP status and an error
    code that are answered instead of one.
    """

    def __init__(self, signer: TokenSigner, *, life_s: float = 600, **claims: Any) -> None:
        self.life_s = life_s
        self.refusal: tuple[int, str] | None = None
        self.redirection = ""
        self.issued: list[str] = []
        self.scopes: list[str] = []
        self._signer = signer
        self._claims = claims
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if self.refusal is not None:
            return self.refusal[0], {"error": self.refusal[1]}
        right = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {right}" or form.get("grant_type") != ["client_credentials"]:
            return 401, {"error": "invalid_client", "error_description": authorization}
        self.scopes += form.get("scope", [])
        self.issued.append(self._signer.token(exp=time.time() + self.life_s, **self._claims))
        return 200, {"access_token": self.issued[-1], "expires_in": self.life_s, "token_type": "Bearer"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                if server.redirection:
                    self.send_response(302)
                    self.send_header("location", server.redirection)
                    self.end_headers()
                    return
                status, document = server._answer(self.headers.get("authorization", ""), form)
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
