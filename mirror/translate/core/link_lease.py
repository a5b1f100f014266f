"""Decides which daemon carries a link that is not shared, and when another daemon may replace it.
Pure.

The daemon that carries the link writes notices in the link's topic at the target
(`core/stored_map.py` names their key). The order of the topic decides between daemons; no daemon
compares its clock with another one's:

  a. A daemon may take the link when each process that could carry it has released it, is known to
     be gone, or has written no notice for a session's time.
  b. A notice that takes the link names the notice before it, and counts only if it follows that one
     directly: if two daemons take the link at the same time, only one of them has it.
  c. The daemon that carries the link renews its notice, and stops by its own clock when no renewal
     was confirmed for a session's time.

`link_holder.py` reads and writes the notices.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Final, NamedTuple

from wire.protocol.json_documents import parse_json

KEY: Final = b'{"kind":"owner"}'


class Step(enum.Enum):
    """The meaning of a notice."""

    TAKE = "take"
    RENEW = "renew"
    RELEASE = "release"


class Notice(NamedTuple):
    """One record of the topic: `number` counts the notices of a process, `after` is the id of the
    notice before one that takes the link.
    """

    process: str
    """A token of the daemon's process."""
    number: int
    step: Step
    daemon: str
    """The daemon's name for people."""
    place: str
    """The machine and container of the process, with which a daemon on the same machine can check
    that it has ended.
    """
    after: str = ""

    @property
    def id(self) -> str:
        """An id that no other notice has."""
        return f"{self.process}/{self.number}"


def encode_notice(notice: Notice) -> bytes:
    """The value of the record."""
    return json.dumps({**notice._asdict(), "step": notice.step.value}, separators=(",", ":")).encode()


def decode_notice(value: bytes | None) -> Notice | None:
    """None for a record that is not a notice; early releases left others under the same key."""
    try:
        fields = parse_json(value or b"null")
        return Notice(
            process=str(fields["process"]),
            number=int(fields["number"]),
            step=Step(fields["step"]),
            daemon=str(fields["daemon"]),
            place=str(fields["place"]),
            after=str(fields["after"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


class LinkLease:
    """One daemon's view of the link, from the notices that it has read, its own included."""

    def __init__(self, process: str, *, session_timeout_ms: int) -> None:
        self._process = process
        self._session_timeout_ms = session_timeout_ms
        self._last_id: str | None = None
        # Other processes that may carry the link, with the time at which their last notice was
        # read.
        self._received: dict[str, tuple[Notice, float]] = {}
        self.holder: Notice | None = None

    @property
    def last_id(self) -> str:
        """The id of the last notice; empty before the first one."""
        return self._last_id or ""

    @property
    def is_ours(self) -> bool:
        """True if the link belongs to this process by the order of the topic; by its own clock, the
        process knows whether it still does.
        """
        return self.holder is not None and self.holder.process == self._process

    def read(self, notice: Notice, *, now_ms: float) -> None:
        """The next notice of the topic, read at this time of the monotonic clock."""
        match notice.step:
            case Step.TAKE if self._last_id is None or notice.after == self._last_id:
                # The daemon that took the link has made sure that no other process carries it.
                self._received.clear()
                self._hold(notice, now_ms)
            case Step.RENEW if notice.process != self._process or self.is_ours:
                self._hold(notice, now_ms)
            case Step.RELEASE:
                self._received.pop(notice.process, None)
                if self.holder is not None and self.holder.process == notice.process:
                    self.holder = None
        self._last_id = notice.id

    def may_take(self, *, now_ms: float, is_gone: Callable[[str], bool]) -> bool:
        """True if no other process carries the link; `is_gone` maps a place to whether its process
        has ended.
        """
        return all(
            is_gone(notice.place) or now_ms - received_at_ms >= self._session_timeout_ms
            for notice, received_at_ms in self._received.values()
        )

    def _hold(self, notice: Notice, now_ms: float) -> None:
        if notice.process != self._process:
            self._received[notice.process] = notice, now_ms
            if notice.step is Step.RENEW and self.is_ours:
                return  # The notice was written before its daemon had read that the link is ours.
        self.holder = notice
