"""The bytes of a TLS connection as a listener of a broker receives them: a handshake that goes
wrong ends as an `ssl.SSLError` or waits for more, and records that were changed on the way never
become another content than what was sent.

The client is real, so that inputs reach the states behind the handshake: the first two bytes of an
input are the number of the client's own bytes that pass unchanged, and the input's other bytes
replace the later ones.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from cli.credentials.authority import AUTHORITY_CERTIFICATE, PRIVATE, make_authority, save_authority, write_file
from runtime.configuration import load_settings
from wire.tls.server_settings import ServerTlsSettings

SENT: Final = b"frame" * 100
ROUNDS_MAX: Final = 20


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A listener's context that asks for certificates, and a client's."""
    with tempfile.TemporaryDirectory() as directory:
        authority, file = make_authority("fuzz"), Path(directory) / "broker.pem"
        trusted = Path(directory) / AUTHORITY_CERTIFICATE
        write_file(file, authority.issue(common_name="broker", uris=[], hosts=("localhost",)), mode=PRIVATE)
        save_authority(authority, Path(directory))
        options = {
            "ssl.keystore.location": str(file),
            "ssl.truststore.location": str(trusted),
            "ssl.client.auth": "requested",
        }
        server = load_settings(ServerTlsSettings, options).server_context()
        client = ssl.create_default_context(cafile=str(trusted))
    return server, client


class _End:
    """One end of a connection in memory."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if is_server else "localhost"
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=is_server, server_hostname=name)
        self.is_through = False

    def shake(self) -> None:
        """Go on with the handshake as far as what has come allows."""
        if not self.is_through:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                return
            self.is_through = True


class _Line:
    """The line from the client to the server: the first bytes unchanged, then the input's."""

    def __init__(self, data: bytes) -> None:
        self._unchanged = int.from_bytes(data[:2], "big") % 4096
        self._instead = data[2:]

    def carry(self, sent: bytes) -> bytes:
        """The bytes that arrive for those that were sent."""
        kept, self._unchanged = sent[: self._unchanged], max(0, self._unchanged - len(sent))
        changed = len(sent) - len(kept)
        taken, self._instead = self._instead[:changed], self._instead[changed:]
        return kept + taken + sent[len(kept) + len(taken) :]


def run(data: bytes) -> None:
    """Complete the handshake over the line, then send; the server reads only the sent bytes."""
    server_context, client_context = _contexts()
    server, client = _End(server_context, is_server=True), _End(client_context, is_server=False)
    line, received, has_sent = _Line(data), b"", False
    try:
        for _ in range(ROUNDS_MAX):
            client.shake()
            if client.is_through and not has_sent:
                client.tls.write(SENT)
                has_sent = True
            server.incoming.write(line.carry(client.outgoing.read()))
            server.shake()
            client.incoming.write(server.outgoing.read())
            if server.is_through:
                try:
                    received += server.tls.read(1 << 16)
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLError:
        pass
    if len(data) <= 2:
        assert received == SENT, "nothing was changed, and not all has come"
    assert SENT.startswith(received), "a record that was changed was accepted"


def seeds() -> Sequence[bytes]:
    """Nothing changed; changes in the first message, in the last of the handshake, in a record."""
    return [
        b"\x0f\xff",
        b"\x00\x00",
        b"\x00\x00" + b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x00\x00" + b"GET / HTTP/1.1\r\n\r\n",
        b"\x02\x10\x17\x03\x03\x00\x20" + bytes(32),
        b"\x02\x80" + bytes(64),
        b"\x00\x00\x15\x03\x03\x00\x02\x02\x28",
    ]
