"""A link's record and a site's notes beside it: the accounts of its failovers, whether its standby
protects the site, the time until which the sites are proven equal, the last rehearsal, the access
rules that both sites have had, and the site's part in the link's lease. Decoders raise
`MalformedZnode`.
"""

from __future__ import annotations

import zlib
from typing import Final, TypeVar

from google.protobuf import json_format

from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkProtection, LinkRehearsal, LinkVerification, SharedAccess
from wire.rules.links import InvalidPattern, check_pattern, patterns_of
from wire.znodes.documents import Fields, MalformedZnode, encode_document
from wire.znodes.layout import link_path

Stored = TypeVar("Stored", LinkProtection, LinkVerification, LinkRehearsal, SharedAccess)


ACCOUNT_BYTES_PLAIN: Final = 100_000
"""Longer accounts are stored compressed: a znode holds 1 MB."""
COMPRESSION_LEVEL: Final = 1
"""An account repeats the same fields for each partition, so the fastest level is enough: writers
may wait for it.
"""


def failovers_path(link: str) -> str:
    """Parent of the accounts of a link's failovers."""
    return f"{link_path(link)}/failovers"


def failover_path(link: str, epoch: int) -> str:
    """Account of the failover that raised the link to `epoch`."""
    return f"{failovers_path(link)}/{epoch}"


def encode_account(document: str) -> bytes:
    """An account, as JSON, as it is stored: compressed where it is long."""
    plain = document.encode()
    return plain if len(plain) <= ACCOUNT_BYTES_PLAIN else zlib.compress(plain, COMPRESSION_LEVEL)


def decode_account(link: str, epoch: int, data: bytes) -> str:
    """The account that `encode_account` stored."""
    if data[:1] == b"{":
        return data.decode()
    try:
        return zlib.decompress(data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise MalformedZnode(failover_path(link, epoch), f"it is no account: {error}") from error


def runs_path(link: str) -> str:
    """Parent of the runs of a link's failovers."""
    return f"{link_path(link)}/runs"


def run_path(link: str, run: str) -> str:
    """Return the path of one run: its user, its steps, its end."""
    return f"{runs_path(link)}/{run}"


def protection_path(link: str) -> str:
    """The last verdict of the active site's agents on the link's protection."""
    return f"{link_path(link)}/protection"


def verification_path(link: str) -> str:
    """Return the path of the time until which the active site's agents have proven the link's sites
    equal.
    """
    return f"{link_path(link)}/verification"


def rehearsal_path(link: str) -> str:
    """The last rehearsal on clones of this site's logs."""
    return f"{link_path(link)}/rehearsal"


def shared_access_path(link: str) -> str:
    """The access rules that both sites of the link had at the end of the mirror's last round into
    this site.
    """
    return f"{link_path(link)}/shared-access"


def vows_path(link: str) -> str:
    """Parent of the brokers of the active site that hold permits by this site's vow."""
    return f"{link_path(link)}/vows"


def vow_path(link: str, node: str) -> str:
    """Return the path of such a broker, by site and node id."""
    return f"{vows_path(link)}/{node}"


def opened_path(link: str) -> str:
    """The last epoch that the arbiter opened for this site, as a decimal number."""
    return f"{link_path(link)}/opened"


def complete_path(link: str) -> str:
    """The last epoch in which the active site reported that its standby protects it, as a decimal
    number: the first copy is complete.
    """
    return f"{link_path(link)}/complete"


def encode(message: LinkProtection | LinkVerification | LinkRehearsal | SharedAccess) -> bytes:
    """Encode an agent's data about a link as JSON."""
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


def decode_protection(link: str, payload: bytes) -> LinkProtection:
    """The verdict stored beside `link`."""
    return _decoded(LinkProtection(), protection_path(link), payload)


def decode_verification(link: str, payload: bytes) -> LinkVerification:
    """The state of the proof stored beside `link`."""
    return _decoded(LinkVerification(), verification_path(link), payload)


def decode_rehearsal(link: str, payload: bytes) -> LinkRehearsal:
    """The last rehearsal stored beside `link`."""
    return _decoded(LinkRehearsal(), rehearsal_path(link), payload)


def decode_shared_access(link: str, payload: bytes) -> SharedAccess:
    """The shared access rules stored beside `link`."""
    return _decoded(SharedAccess(), shared_access_path(link), payload)


def _decoded(message: Stored, path: str, payload: bytes) -> Stored:
    try:
        return json_format.Parse(payload, message, ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise MalformedZnode(path, str(error)) from error


def encode_link(link: LinkRecord) -> bytes:
    """A link record as JSON with the names of the proto."""
    return encode_document(json_format.MessageToDict(link, preserving_proto_field_name=True))


def decode_link(name: str, payload: bytes) -> LinkRecord:
    """The link stored under `name`."""
    path = link_path(name)
    fields = Fields.parse(path, payload)
    try:
        link = json_format.ParseDict(dict(fields.values), LinkRecord(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise MalformedZnode(path, str(error)) from error
    if not link.active_site:
        fields.fail("field 'active_site' is missing or empty")
    if link.name != name:
        fields.fail(f"field 'name' is {link.name!r}, not the name of the node")
    try:
        for pattern in patterns_of(link):
            check_pattern(pattern)
    except InvalidPattern as error:
        raise MalformedZnode(path, str(error)) from error
    return link
