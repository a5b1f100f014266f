"""The lock of an archive: one archiver at a time writes to it. `core/claims.py` decides.

claims/ID.json    one document an archiver that runs
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.claims import (
    LEASE_MS,
    RENEWAL_MS,
    Claim,
    claim_of,
    ended_here,
    others,
    unchanged,
)
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.session import Progress

CLAIMS: Final = "claims"
_POLL_S: Final = 0.5
_MS: Final = 1000


class ArchiveLock:
    """The claim of this process; `held` while it writes."""

    def __init__(self, store: ArchiveStore, progress: Progress = lambda _: None, *, lease_ms: int = LEASE_MS) -> None:
        self._store = store
        self._progress = progress
        self._lease_ms = lease_ms
        self._renewals = 0
        self._id = uuid4().hex
        self._host = socket.gethostname()
        self._ended = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the block. Raises OperationalFailure, which names the archiver that has
        it.
        """
        # written before it looks: of two that start together each sees the other
        self._write(self._own())
        renewing = threading.Thread(target=self._renew, name="archive lock", daemon=True)
        renewing.start()
        try:
            self._wait_alone("the archive is in use by {}: one archiver at a time may write to it")
            yield
        finally:
            # the renewal ends first, or it would write the claim once more
            self._ended.set()
            renewing.join()
            self._withdraw(self._own())

    def check(self) -> None:
        """Before something is written that others read. Raises OperationalFailure when another
        archiver has taken the lock, because this process did not renew its claim in time.

        An archiver that is only asking withdraws its claim as soon as it sees this one.
        """
        self._check_own()
        deadline = time.monotonic() + self._lease_ms / _MS
        while live := self._live(self._own()):
            if time.monotonic() >= deadline:
                raise OperationalFailure(f"the archive is in use by {live[0]} too: end one of them, and run it again")
            time.sleep(_POLL_S)

    def _check_own(self) -> None:
        if all(claim.claim_id != self._id for claim in self._claims()):
            raise OperationalFailure(
                f"the archive's lock was lost: this process did not renew it for {self._lease_ms} ms; run it again"
            )

    def _wait_alone(self, refusal: str) -> None:
        live = self._live(self._own())
        if live:
            self._progress(f"the archive is in use by {live[0]}: waiting to see whether it runs")
            live = self._that_renew(live)
        if live:
            raise OperationalFailure(refusal.format(live[0]))

    def _live(self, own: Claim) -> list[Claim]:
        """Other claims, without claims of processes that have ended on this machine; these are
        removed.
        """
        found = []
        for claim in others(self._claims(), own):
            if ended_here(claim, own_host=own.host, is_running=_is_running):
                self._withdraw(claim)
            else:
                found.append(claim)
        return found

    def _that_renew(self, claims: list[Claim]) -> list[Claim]:
        """Live claims: of a running process on this machine, or of a process elsewhere that renews
        its claim within the lease. The others' claims are removed.
        """
        here = [claim for claim in claims if claim.host == self._host]
        # a running process of this machine holds it: nothing to wait for
        if here:
            return here
        deadline = time.monotonic() + self._lease_ms / _MS
        while time.monotonic() < deadline:
            time.sleep(min(_POLL_S, self._lease_ms / _MS))
            now = [claim for claim in self._claims() if claim.claim_id in {one.claim_id for one in claims}]
            # a claim that is renewed is alive, independently of its clock
            if len(unchanged(claims, now)) < len(now):
                return now
        for claim in unchanged(claims, now):
            self._withdraw(claim)
        return []

    def _renew(self) -> None:
        while not self._ended.wait(min(RENEWAL_MS, self._lease_ms / 4) / _MS):
            self._renewals += 1
            # one failed renewal is within the lease
            with suppress(OperationalFailure):  # the next renewal, or `check`, meets what lasts
                # not `check`: an archiver that is only asking waits for this very renewal
                self._check_own()
                self._write(self._own())

    def _own(self) -> Claim:
        return Claim(
            claim_id=self._id,
            host=self._host,
            pid=os.getpid(),
            process_started_ticks=_started_ticks(os.getpid()),
            renewals=self._renewals,
        )

    def _claims(self) -> list[Claim]:
        found = []
        for path in self._store.paths(CLAIMS):
            try:
                found.append(claim_of(json.loads(self._store.content(path))))
            except (FileNotFoundError, ValueError):
                continue  # withdrawn meanwhile, or not yet a claim
            except OSError as error:
                raise OperationalFailure(f"the claim {path} cannot be read: {error}") from error
        return found

    def _write(self, claim: Claim) -> None:
        self._store.put(_path(claim), json.dumps(claim.as_document()).encode())

    def _withdraw(self, claim: Claim) -> None:
        with suppress(OperationalFailure):
            self._store.remove(_path(claim))


def _path(claim: Claim) -> str:
    return f"{CLAIMS}/{claim.claim_id}.json"


def _is_running(pid: int, started_ticks: int) -> bool:
    return _started_ticks(pid) == started_ticks


def _started_ticks(pid: int) -> int:
    """When the process started, in clock ticks since the start of this machine; -1 when there is no
    such process.
    """
    try:
        # the name of a program may contain spaces and brackets: fields are counted behind the last
        # bracket
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[19])
