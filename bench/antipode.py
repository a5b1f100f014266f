"""Our side: sites from the front door, `antipode up`, as a person starts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Side
from bench.systems import BROKER_SETTINGS, MeasuredBroker, running
from cli.embedded import ENVIRONMENT_FILE
from dr.environment import Environment, load_environment
from runtime.children import Child

REPOSITORY = Path(__file__).resolve().parent.parent
READY_WITHIN_S = 60


@contextmanager
def sites(directory: Path, *arguments: str) -> Iterator[Environment]:
    """Sites in a fresh directory, ended with the block; arguments are those of `antipode up`."""
    settings = [f"--broker-config={key}={value}" for key, value in BROKER_SETTINGS.items()]
    command = (sys.executable, "-m", "cli.main", "up", *settings, *arguments, "--dir", str(directory))
    front_door = Child(
        name="antipode-up",
        command=command,
        directory=directory.with_name(f"{directory.name}-command"),
        log=directory.with_name(f"{directory.name}.log"),
        environment={"PYTHONPATH": str(REPOSITORY)},
    )
    file = directory / ENVIRONMENT_FILE
    with running(front_door, file.exists, within_s=READY_WITHIN_S):
        yield load_environment(file)


@contextmanager
def lone_broker(directory: Path) -> Iterator[MeasuredBroker]:
    """One site with one broker, linked to nobody; ZooKeeper runs beside it."""
    with sites(directory, "--sites", "a", "--no-link", "--no-proxy") as environment:
        yield broker_of(environment, "a")


def broker_of(environment: Environment, site: str) -> MeasuredBroker:
    """The first broker of a site."""
    at = environment.sites[site]
    child = next(process.child() for process in at.processes if process.name.startswith("broker-"))
    return MeasuredBroker(side=Side.ANTIPODE, bootstrap_servers=at.bootstrap_servers, child=child)
