"""What a site keeps beside a link's record (`layout.py`): the accounts of its failovers, and
whether its standby protects the site. Decoders raise `MalformedZnode`.
"""

from __future__ import annotations

from google.protobuf import json_format

from wire.control.site_pb2 import LinkProtection
from wire.znodes.layout import MalformedZnode, link_path


def failovers_path(link: str) -> str:
    """Parent of the accounts of a link's failovers."""
    return f"{link_path(link)}/failovers"


def failover_path(link: str, epoch: int) -> str:
    """Account of the failover that raised the link to `epoch`."""
    return f"{failovers_path(link)}/{epoch}"


def protection_path(link: str) -> str:
    """The last verdict of the active site's agents on the link's protection."""
    return f"{link_path(link)}/protection"


def encode_protection(protection: LinkProtection) -> bytes:
    """The verdict as JSON."""
    return json_format.MessageToJson(protection, indent=None, ensure_ascii=False).encode()


def decode_protection(link: str, payload: bytes) -> LinkProtection:
    """The verdict stored beside `link`."""
    try:
        return json_format.Parse(payload, LinkProtection(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise MalformedZnode(protection_path(link), str(error)) from error
