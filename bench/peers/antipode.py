"""The Antipode side: sites that are started by `antipode up`, as a person starts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.measuring.figures import Side
from bench.peers.systems import BROKER_SETTINGS, MeasuredBroker, MeasuredSite, ended_with_the_block, running
from cli.embedding.embedded import ENVIRONMENT_FILE
from cli.embedding.parts import STOP_LIMIT_MS
from dr.drill.environment import Environment, load_environment
from runtime.children import Child
from runtime.compiled import ROOT

READY_WITHIN_S = 60
BROKER_NAME = "broker-"


@contextmanager
def sites(
    directory: Path,
    *arguments: str,
    broker_settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Environment]:
    """Sites in a fresh directory, ended with the block; arguments are those of `antipode up`,
    `variables` go into the environment of every process.
    """
    all_settings = {**BROKER_SETTINGS, **(broker_settings or {})}
    settings = [f"--broker-config={key}={value}" for key, value in all_settings.items()]
    command = (sys.executable, "-m", "cli.main", "up", *settings, *arguments, "--dir", str(directory))
    front_door = Child(
        name="antipode-up",
        command=command,
        directory=directory.with_name(f"{directory.name}-command"),
        log=directory.with_name(f"{directory.name}.log"),
        environment={"PYTHONPATH": str(ROOT), **(variables or {})},
    )
    file = directory / ENVIRONMENT_FILE
    # `antipode up` waits that long for a part that works on its stop; killed earlier, it would
    # leave the parts running that it stops last
    with running(front_door, file.exists, within_s=READY_WITHIN_S, stop_timeout_ms=STOP_LIMIT_MS):
        yield load_environment(file)


@contextmanager
def lone_broker(
    directory: Path, *, settings: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[MeasuredBroker]:
    """One site with one broker and no link; ZooKeeper runs beside it."""
    arguments = ("--sites", "a", "--no-link", "--no-proxy")
    with sites(directory, *arguments, broker_settings=settings, variables=variables) as environment:
        yield broker_of(environment, "a")


@contextmanager
def replicated_site(
    directory: Path, *, count: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[MeasuredSite]:
    """One site of several brokers without a link; `settings` override those of every measured
    broker.
    """
    arguments = ("--sites", "a", "--brokers", str(count), "--no-link", "--no-proxy")
    with sites(directory, *arguments, broker_settings=settings) as environment:
        at = environment.sites["a"]
        children = {
            int(process.name.removeprefix(BROKER_NAME)): process.child()
            for process in at.processes
            if process.name.startswith(BROKER_NAME)
        }
        addresses = dict(zip(children, at.bootstrap_servers.split(","), strict=True))
        site = MeasuredSite(side=Side.ANTIPODE, addresses=addresses, children=children)
        with ended_with_the_block(site):
            site.wait_complete(within_s=READY_WITHIN_S)
            yield site


def broker_of(environment: Environment, site: str) -> MeasuredBroker:
    """The first broker of a site."""
    at = environment.sites[site]
    child = next(process.child() for process in at.processes if process.name.startswith(BROKER_NAME))
    return MeasuredBroker(side=Side.ANTIPODE, bootstrap_servers=at.bootstrap_servers, child=child)


def translate_daemon(
    directory: Path,
    source: str,
    target: str,
    topics: Sequence[str],
    *,
    source_alias: str,
    settings: Mapping[str, str] | None = None,
) -> Child:
    """A daemon of a translate link, not started; its file is written, and the target's topics are
    called `<source_alias>.<name>`.
    """
    directory.mkdir(parents=True)
    file = directory / "mirror.properties"
    properties = {
        "link.name": f"{source_alias}-B",
        "link.mode": "translate",
        "source.alias": source_alias,
        "target.alias": "B",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "whitelist": ",".join(topics),
        "replication.factor": "1",
        "antipode.allow.plaintext": "true",
        **(settings or {}),
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    return Child(
        name=directory.name,
        command=(sys.executable, "-m", "cli.main", "mirror", "--config", str(file)),
        directory=directory,
        log=directory / "mirror.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
