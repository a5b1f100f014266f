"""The arbiter's data about each link (`dr/agent/arbiter.py`): which site may write, which brokers
may hold permits, and which brokers live. Decoders raise `MalformedZnode`.

Deployments that share an ensemble separate themselves by a chroot in the connect string.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf import json_format

from wire.control.site_pb2 import ArbiterRecord
from wire.znodes.documents import MalformedZnode

ARBITRATION = "/antipode/arbitration"
IDENTITY = f"{ARBITRATION}/id"
LINKS = f"{ARBITRATION}/links"
SITES = f"{ARBITRATION}/sites"
OUT_OF_SYNC = b"out of sync"
"""The content of a holder's znode while the broker may acknowledge records that the standby lacks.
"""


class Holder(NamedTuple):
    """A broker that may hold a permit."""

    site: str
    node_id: int

    @property
    def node(self) -> str:
        """The name of its znode; a site's name has no colon."""
        return f"{self.site}:{self.node_id}"


def record_path(link: str) -> str:
    """The record of one link."""
    return f"{LINKS}/{link}"


def holders_path(link: str) -> str:
    """Parent of the brokers that may hold permits of a link."""
    return f"{record_path(link)}/holders"


def holder_path(link: str, holder: Holder) -> str:
    """Return the path of a broker that may hold a permit; the node stays when the broker dies."""
    return f"{holders_path(link)}/{holder.node}"


def site_path(site: str) -> str:
    """Parent of the brokers of a site that reach the arbiter."""
    return f"{SITES}/{site}"


def presence_path(site: str, node_id: int) -> str:
    """Return the path of a broker that reaches the arbiter; the node is ephemeral."""
    return f"{site_path(site)}/{node_id}"


def encode_record(record: ArbiterRecord) -> bytes:
    """A record as JSON."""
    return json_format.MessageToJson(record, indent=None, ensure_ascii=False).encode()


def decode_record(link: str, payload: bytes) -> ArbiterRecord:
    """The record stored for `link`."""
    try:
        return json_format.Parse(payload, ArbiterRecord(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise MalformedZnode(record_path(link), str(error)) from error


def decode_holder(link: str, node: str) -> Holder:
    """The broker that a child of `holders_path` names."""
    site, _, node_id = node.rpartition(":")
    if not site or not node_id.isdigit():
        raise MalformedZnode(f"{holders_path(link)}/{node}", "accepted is a site's name, a colon and a node id")
    return Holder(site, int(node_id))
