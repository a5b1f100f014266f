"""The ports of embedded sites, kept in their directory so that sites start again at the same
addresses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

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
_REMOVE = "remove the file to have other ports chosen"


class PortFile(BaseModel):
    """The content of the file: the shape of the sites, and the ports in the order of `plan`."""

    sites: tuple[str, ...]
    brokers: int
    # missing in a directory of a release that knew no other value
    is_secure: bool = False
    ports: list[Annotated[int, Field(ge=1, le=65535)]]

    def describe(self) -> str:
        """The shape, for an error message."""
        security = " --secure" if self.is_secure else ""
        return f"sites {','.join(self.sites)} with {self.brokers} brokers each{security}"

    def has_shape_of(self, other: PortFile) -> bool:
        """True if the ports serve the same sites."""
        return (self.sites, self.brokers, self.is_secure) == (other.sites, other.brokers, other.is_secure)


def layout_in_directory(wishes: Wishes) -> Layout:
    """The layout for these wishes: with the ports that the directory used before, else with free
    ones.
    """
    file = wishes.directory / PORTS_FILE
    wanted = PortFile(sites=wishes.sites, brokers=wishes.brokers, is_secure=wishes.is_secure, ports=[])
    try:
        if not file.exists():
            wishes.directory.mkdir(parents=True, exist_ok=True)
            wanted.ports = free_ports(ports_needed(wishes))
            replace_file(file, wanted.model_dump_json())
        stored = PortFile.model_validate(json.loads(file.read_bytes()))
    except OSError as error:
        raise OperationalFailure(
            f"--dir {wishes.directory} cannot be used ({error.strerror}): accepted is a directory that can be written"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "content"
        raise OperationalFailure(f"{file}: {field}: {first['msg']}; {_REMOVE}") from error
    except (ValueError, RecursionError) as error:
        raise OperationalFailure(f"{file} is not JSON: {error}; {_REMOVE}") from error
    if not stored.has_shape_of(wanted):
        raise OperationalFailure(
            f"{wishes.directory} holds {stored.describe()}, not {wanted.describe()}; give the same or another --dir"
        )
    missing = ports_needed(wishes) - len(stored.ports)
    if missing > 0:  # the directory is of a release with fewer parts
        stored.ports += free_ports(missing)
        replace_file(file, stored.model_dump_json())
    return plan(wishes, stored.ports)


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
