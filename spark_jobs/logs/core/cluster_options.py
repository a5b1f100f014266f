"""The cluster that a job reads or writes, as options name it, and the refusal of an option.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


class InvalidOption(ValueError):
    """An option that is unknown, wrong, or contradicts another one."""

    def __init__(self, key: str, value: str, accepted: str) -> None:
        super().__init__(f"option {key} is {value!r}; accepted: {accepted}")
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The cluster, and the identity with which it is read. `site` "" reads as an application does;
    a name reads that site's own copies.
    """

    bootstrap: str
    site: str = ""
    rack: str = ""
    client_id: str = "antipode-spark"
    request_timeout_ms: int = 30_000
    security: tuple[tuple[str, str], ...] = ()
