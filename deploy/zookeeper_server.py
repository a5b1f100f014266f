"""One ZooKeeper server as a child process, alone or as a member of an ensemble: its files, its
command, and a check whether it answers.

A server answers `ruok` before it serves, so the check waits for a `srvr` answer with a `Mode:`
line. `antipode up` and the tests use it; production sites have their own ensemble.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import class_archives, parts
from deploy.ports import LOOPBACK
from runtime.children import Child

PROBE_TIMEOUT_S = 0.3
"""A connection made while the server starts may hang, so the probe ends early and is repeated."""
HEAP_MB_MAX = 128

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


def _login_configuration(users: Mapping[str, str]) -> str:
    """JAAS of a server whose users log in with DIGEST-MD5."""
    options = "".join(f'\n  user_{name}="{password}"' for name, password in users.items())
    return f"Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required{options};\n}};\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleMember:
    """The addresses at which the other members reach one member."""

    quorum_port: int
    election_port: int
    host: str = LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperServer:
    """A server that keeps everything under `directory`. With `ensemble`, `number` is this server's
    key in it.
    """

    name: str
    directory: Path
    port: int
    number: int = 0
    ensemble: Mapping[int, EnsembleMember] | None = None
    host: str = LOOPBACK
    users: Mapping[str, str] | None = None
    """Passwords by user; with users, a session without one of them is refused."""
    certificate: Path | None = None
    """A PEM file with the server's key and certificates: sessions are encrypted, and clients show
    certificates of the authority.
    """
    authority: Path | None = None

    @property
    def connect(self) -> str:
        """The connect string of this server."""
        return f"{self.host}:{self.port}"

    def child(self, *, log: Path | None = None) -> Child:
        """Write the configuration (the same each time) and return the process, not started.
        OperationalFailure without Java or jars.
        """
        self._write_files()
        configuration = self.directory / "zoo.cfg"
        # only Netty can encrypt sessions and require a login
        needs_netty, with_tls = bool(self.users or self.certificate), self.certificate is not None
        jars = (*parts.zookeeper_jars(), *(parts.netty_jars(with_tls=with_tls) if needs_netty else ()))
        classpath = os.pathsep.join(str(jar) for jar in jars)
        command = [
            str(parts.java().executable),
            f"-Xmx{HEAP_MB_MAX}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *class_archives.ZOOKEEPER.options(),
            # the default of 5 s delays the election of an ensemble whose members start one after
            # another
            "-Dzookeeper.cnxTimeout=1000",
            *self._login_options(),
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            classpath,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(configuration),
        ]
        return Child(
            name=self.name, command=command, directory=self.directory, log=log or self.directory / "zookeeper.log"
        )

    def is_serving(self) -> bool:
        """True if it answers requests now; waits at most `PROBE_TIMEOUT_S`."""
        return "Mode:" in self.four_letter_word("srvr")

    def four_letter_word(self, word: str) -> str:
        """The server's answer to `srvr`, `stat`, `mntr`, `conf`, `cons`, `wchs` or `ruok`; empty if
        it does not answer.
        """
        answer = bytearray()
        try:
            with self._connected() as connection:
                connection.settimeout(PROBE_TIMEOUT_S)
                connection.sendall(word.encode("ascii"))
                while chunk := connection.recv(65536):
                    answer += chunk
        except OSError:
            return ""
        return answer.decode("utf-8", errors="replace")

    def _connected(self) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), timeout=PROBE_TIMEOUT_S)
        if self.certificate is None:
            return plain
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate)
        return context.wrap_socket(plain, server_hostname=self.host)

    def _write_files(self) -> None:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self.ensemble is not None:
            (data / "myid").write_text(f"{self.number}\n", encoding="ascii")
        (self.directory / "log4j2.properties").write_text(_LOGGING, encoding="ascii")
        if self.users:
            # mode 0600 from the first byte on: the file has passwords
            with open(os.open(self._login_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(_login_configuration(self.users))
        settings = "".join(f"{key}={value}\n" for key, value in self._settings().items())
        (self.directory / "zoo.cfg").write_text(settings, encoding="utf-8")

    @property
    def _login_file(self) -> Path:
        return self.directory / "jaas.conf"

    def _login_options(self) -> list[str]:
        if not self.users:
            return []
        return [
            f"-Djava.security.auth.login.config={self._login_file}",
            "-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "-Dzookeeper.sessionRequireClientSASLAuth=true",
        ]

    def _settings(self) -> dict[str, str]:
        settings = {
            # sessions expire at whole ticks, so short sessions need short ticks
            "tickTime": "200",
            "dataDir": str(self.directory / "data"),
            "clientPortAddress": self.host,
            "clientPort": str(self.port),
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,stat,mntr,conf,cons,wchs,isro",
            # no limit: all processes of a site come from one address here
            "maxClientCnxns": "0",
            # the defaults of 2 and 20 ticks would shorten every session to at most 4 s
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "60000",
        }
        if self.certificate is not None:
            settings |= {
                # the plaintext port moves away: with TLS no session may be in plaintext
                "secureClientPortAddress": settings.pop("clientPortAddress"),
                "secureClientPort": settings.pop("clientPort"),
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": str(self.certificate),
                "ssl.trustStore.location": str(self.authority),
                "ssl.clientAuth": "need",
            }
        if self.ensemble is not None:
            settings |= {
                "initLimit": "25",
                "syncLimit": "15",
                "standaloneEnabled": "false",
                "quorumListenOnAllIPs": "false",
            }
            for number, member in self.ensemble.items():
                address = f"{member.host}:{member.quorum_port}:{member.election_port}:participant"
                settings[f"server.{number}"] = address
        return settings
