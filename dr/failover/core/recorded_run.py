"""The record of a failover run as a site keeps it, and the process that continues a run that has
not ended.

A record cannot say that the process of its run has died. The link's record, and the time since the
run's last report, can.
"""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec import Struct, field, to_builtins

from wire.control.cluster_pb2 import LinkPhase, LinkRecord

RUNNING: Final = "running"
REFUSED: Final = "refused"


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run in its stored form. `epoch` is the link's epoch when the record was written; `steps`
    are `StepReport` as dicts.
    """

    link: str
    to_site: str
    who: str
    command: str
    began_at_ms: int
    updated_at_ms: int
    outcome: str
    reason: str
    epoch: int
    policy: dict[str, Any] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> str:
        """Return the JSON text that is stored."""
        return json.dumps(to_builtins(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """Raises ValueError or TypeError for an invalid text; fields of later releases are
        ignored.
        """
        document = json.loads(text)
        known = {name: document[name] for name in cls.__struct_fields__ if name in document}
        return cls(**{**known, "steps": tuple(known.get("steps", ()))})


def driver(run: RunRecord, *, is_silent: bool, has_later: bool, record: LinkRecord | None, is_confirmed: bool) -> str:
    """Return who carries the run on, in a phrase; empty for a run that has ended.

    `is_silent`: the run's process has stopped reporting. `has_later`: another run of the link,
    which was not refused, has begun since. `record`: the link's record that governs; None where no
    site that answers has one. `is_confirmed`: the site that the record makes active has confirmed
    its role.
    """
    if run.outcome != RUNNING:
        return ""
    if not is_silent:
        return "its process"
    if has_later:
        return "a later run"
    if record is None:
        return "no process: no site that answers has the link"
    if record.active_site == run.to_site and record.epoch >= run.epoch:
        if is_confirmed:
            return f"the agents of {run.to_site} have finished it: epoch {record.epoch} is confirmed"
        return f"the agents of {run.to_site}: epoch {record.epoch} is not confirmed yet, run it again if that lasts"
    if record.phase == LinkPhase.FENCED:
        return f"no process: writes at {record.active_site} are stopped, run it again or abort it"
    return f"no process: {record.active_site} is active in epoch {record.epoch}"
