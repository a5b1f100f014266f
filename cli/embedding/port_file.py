"""The ports of embedded sites, kept in their directory so that sites start again at the same
addresses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.embedding.layout_plan import Wishes, plan, ports_needed
from cli.embedding.site_layout import (
    Layout,
    listeners,
)
from deploy.ports import free_ports, is_free
from runtime.addresses import parse_host_port
from runtime.disk import RealDisk, write_file
from runtime.process import OperationalFailure

PORTS_FILE = "ports.json"


def layout_in_directory(wishes: Wishes) -> Layout:
    """The layout for these wishes: with the ports that the directory used before, else with free
    ones.
    """
    file = wishes.directory / PORTS_FILE
    shape = {"sites": list(wishes.sites), "brokers": wishes.brokers, "is_secure": wishes.is_secure}
    try:
        if not file.exists():
            wishes.directory.mkdir(parents=True, exist_ok=True)
            replace_file(file, json.dumps({**shape, "ports": free_ports(ports_needed(wishes))}))
        stored = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OperationalFailure(
            f"--dir {wishes.directory} cannot be used ({error.strerror}): accepted is a directory that can be written"
        ) from error
    except ValueError as error:
        raise OperationalFailure(f"{file} is not JSON: {error}; remove the directory to start again") from error
    stored.setdefault("is_secure", False)  # a directory of a release that knew no other
    if {key: stored.get(key) for key in shape} != shape:
        raise OperationalFailure(
            f"{wishes.directory} holds {_described(stored)}, not {_described(shape)}; give the same or another --dir"
        )
    missing = ports_needed(wishes) - len(stored["ports"])
    if missing > 0:  # the directory is of a release with fewer parts
        stored["ports"] += free_ports(missing)
        replace_file(file, json.dumps(stored))
    return plan(wishes, stored["ports"])


def _described(shape: Mapping[str, Any]) -> str:
    security = " --secure" if shape.get("is_secure") else ""
    return f"sites {','.join(shape.get('sites', []))} with {shape.get('brokers')} brokers each{security}"


def replace_file(file: Path, text: str) -> None:
    """A reader finds the former file or the whole new one, also when this process is killed."""
    write_file(RealDisk(), str(file), text.encode(), is_durable=False)


def refuse_taken_ports(layout: Layout) -> None:
    """OperationalFailure when another program listens at an address of the layout."""
    taken = [f"{address} ({what})" for what, address in listeners(layout) if not is_free(parse_host_port(address).port)]
    if taken:
        raise OperationalFailure(
            f"in use by another program: {', '.join(taken)}; stop it, or remove {layout.directory / PORTS_FILE} to have other ports chosen"
        )
