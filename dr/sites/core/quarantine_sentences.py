"""The quarantine of a broker in sentences: how full it is, when its first entry expires, and what
an operator has to do before records are lost. Pure.
"""

from __future__ import annotations

from wire.control.broker_pb2 import QuarantineUse

FILLING_PERCENT = 80.0
"""The use of a partition's bound from which on an operator has to act."""
_UNITS = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000))


def quarantine_sentence(site: str, use: QuarantineUse) -> str:
    """Describe the quarantine of one broker."""
    expiry = "none expires"
    if use.HasField("expires_in_ms"):
        expiry = f"the first, {use.first_expiring}, expires in {_duration(use.expires_in_ms)}"
    return (
        f"quarantine of broker {use.node_id} at {site}: {use.entries} entries, {use.bytes} bytes; "
        f"{use.fullest_partition} uses {use.fullest_percent:.0f} % of its bound; {expiry}"
    )


def quarantine_problem(site: str, use: QuarantineUse) -> str:
    """The same sentence with the remedy, if an entry expires soon or a partition has almost reached
    its bound; otherwise empty.
    """
    remedies = []
    if use.is_expiring:
        remedies.append("replay or export it, or raise antipode.quarantine.retention.ms")
    if use.fullest_percent >= FILLING_PERCENT:
        remedies.append("export and delete entries, or raise antipode.truncated.records.max.bytes")
    return f"{quarantine_sentence(site, use)}: {'; '.join(remedies)}" if remedies else ""


def _duration(ms: int) -> str:
    """A time in whole units, the largest of which there are two."""
    for name, unit_ms in _UNITS:
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {name}"
    return f"{ms // 1000} seconds"
