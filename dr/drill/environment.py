"""The sites that a drill may touch: reads and checks the JSON that `antipode up --output json`
prints.

The file protects all other processes: no plan can make a drill kill, pause or disconnect a process
or proxy that the file does not name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dr.drill.remote_hosts import RemoteChild, RemoteShell
from runtime.children import Child
from runtime.process import OperationalFailure


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class EnvironmentHost(_Part):
    """A machine that a command like ssh reaches: `command` with one more argument runs that
    argument as a shell command on the machine.
    """

    command: tuple[str, ...] = Field(min_length=1)


class EnvironmentProcess(_Part):
    """One process and the command that starts it. `pid` is from the time of printing; the pid file
    in `dir` is newer. `host` names the machine on which it runs, empty for this one.
    """

    name: str
    pid: int | None = None
    dir: Path
    log: Path
    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    host: str = ""

    def child(self) -> Child:
        """The process as an object that can be signalled and started on this machine."""
        return Child(name=self.name, command=self.command, directory=self.dir, log=self.log, environment=self.env)


class EnvironmentSite(_Part):
    """One site's addresses, and its processes in the order in which they start."""

    bootstrap_servers: str
    link_bootstrap_servers: str = ""
    zookeeper: str = ""
    grpc: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    processes: tuple[EnvironmentProcess, ...]


class EnvironmentProxy(_Part):
    """One toxiproxy proxy, through which other processes reach a listener (`kind`) of `site`."""

    name: str
    site: str = ""
    kind: str = ""
    listen: str = ""
    upstream: str = ""


class EnvironmentLink(_Part):
    """A link and the proxies between its sites."""

    name: str
    source: str
    target: str
    proxies: tuple[EnvironmentProxy, ...] = ()


class EnvironmentMirror(EnvironmentProcess):
    """A mirror daemon of `link`, which writes to `site`; `name` contains both sites in the
    direction of mirroring.
    """

    link: str
    site: str
    metrics: str = ""
    grpc: str = ""


class EnvironmentToxiproxy(_Part):
    """The address of toxiproxy's API."""

    api: str


class EnvironmentSecurity(_Part):
    """Files with the credentials of clients and commands, if the sites require a login."""

    ca: Path
    command_config: Path
    viewer_command_config: Path
    admin_client_config: Path
    user_client_config: Path


class Environment(_Part):
    """All running parts."""

    sites: dict[str, EnvironmentSite]
    links: tuple[EnvironmentLink, ...] = ()
    mirrors: tuple[EnvironmentMirror, ...] = ()
    toxiproxy: EnvironmentToxiproxy | None = None
    arbiter: EnvironmentProcess | None = None
    security: EnvironmentSecurity | None = None
    hosts: dict[str, EnvironmentHost] = Field(default_factory=dict)

    def host(self, name: str) -> EnvironmentHost:
        """The host by name. The OperationalFailure for another name lists the known ones."""
        if name not in self.hosts:
            known = ", ".join(sorted(self.hosts)) or "none"
            raise OperationalFailure(f"host {name!r} is not in the environment; there: {known}")
        return self.hosts[name]

    def child(self, process: EnvironmentProcess) -> Child | RemoteChild:
        """The process as an object that can be signalled and started on its own machine."""
        if not process.host:
            return process.child()
        return RemoteChild(
            name=process.name,
            command=process.command,
            directory=process.dir,
            log=process.log,
            environment=process.env,
            shell=RemoteShell(process.host, self.host(process.host).command),
        )

    @property
    def admin_client_config(self) -> Path | None:
        """Kafka client properties of an administrator; None where clients need no login."""
        return None if self.security is None else self.security.admin_client_config

    def link(self, name: str) -> EnvironmentLink:
        """The link by name. The OperationalFailure for another name lists the known ones."""
        for link in self.links:
            if link.name == name:
                return link
        raise OperationalFailure(f"link {name!r} is not in the environment; there: {_names(self.links)}")

    def bootstrap_servers(self, link: str, site: str) -> str:
        """A site's client addresses; "" names the site that is the link's source. Raises
        OperationalFailure for an unknown site.
        """
        name = site or self.link(link).source
        if name not in self.sites:
            raise OperationalFailure(f"site {name!r} is not in the environment: {', '.join(self.sites)}")
        return self.sites[name].bootstrap_servers

    def first_broker(self, site: str) -> str:
        """The name of a site's first broker, together with the site; only the site if no broker is
        known.
        """
        known = self.sites[site].processes if site in self.sites else ()
        return next((f"{site}/{one.name}" for one in known if one.name.startswith("broker")), site)

    def mirrors_of(self, link: str) -> dict[str, EnvironmentMirror]:
        """The link's mirror daemons by the site that each writes to."""
        return {mirror.site: mirror for mirror in self.mirrors if mirror.link == link}

    def agents(self) -> dict[str, tuple[str, ...]]:
        """Agent addresses by site."""
        return {name: site.grpc for name, site in self.sites.items()}

    def _all_processes(self) -> Iterator[tuple[str, str, EnvironmentProcess]]:
        for name, site in self.sites.items():
            for process in site.processes:
                yield name, process.name, process
        for mirror in self.mirrors:
            yield "", f"mirror-{mirror.name}", mirror
        if self.arbiter is not None:
            yield "", "arbiter", self.arbiter

    def processes(self, *, process: str = "", site: str = "") -> list[EnvironmentProcess]:
        """One process by name (`broker-1`, `a/broker-1`, `mirror-a-b`), or all of a site in the
        order of starting.
        """
        wanted_site, _, wanted = process.rpartition("/")
        found = [
            entry
            for at, name, entry in self._all_processes()
            if (at == site if site else name == wanted and wanted_site in ("", at))
        ]
        if not found or (process and len(found) > 1):
            known = ", ".join(f"{at}/{name}" if at else name for at, name, _ in self._all_processes())
            raise OperationalFailure(
                f"{process or site} names {len(found)} processes of the environment; accepted: one of {known}, "
                f"or a site of {', '.join(self.sites)}"
            )
        return found


def _names(links: tuple[EnvironmentLink, ...]) -> str:
    return ", ".join(link.name for link in links) or "none"


def load_environment(path: Path) -> Environment:
    """Read the file. Raises OperationalFailure, which names the wrong field."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OperationalFailure(f"environment {path} is not JSON: {error}") from error
    except OSError as error:
        raise OperationalFailure(
            f"environment {path} cannot be read ({error.strerror}): give the JSON that `antipode up --output json` printed"
        ) from error
    return parse_environment(text, where=str(path))


def parse_environment(text: str, *, where: str) -> Environment:
    """Parse an environment from text, like `load_environment`."""
    try:
        return Environment.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "content"
        raise OperationalFailure(f"environment {where}: {field}: {first['msg']}") from error
    except ValueError as error:
        raise OperationalFailure(f"environment {where} is not JSON: {error}") from error
