"""Runs a reconciliation as a child process and compares its findings with a failover's account.

The caller provides the command (`cli` gives `antipode reconcile`), because Spark jobs and disaster
recovery do not import each other. Its exit code is 0 (equal), 1 (different) or 2 (not compared);
its standard output holds a JSON object with `findings`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from dr.sites.core.loss import LossAccount
from runtime.process import OperationalFailure

EQUAL, DIFFERENT, AS_ACCOUNTED = "equal", "different", "as accounted"
RECORDS_DIFFER = ("missing", "extra", "diverged")
"""Findings that lost records and later writes cause, as seen from the reconciliation's source."""


class ReconcileResult(Struct, frozen=True, kw_only=True):
    """The result of a reconciliation. `lost_records` counts records that only the old site has, at
    or above the kept offsets.
    """

    outcome: str
    findings: tuple[Mapping[str, Any], ...] = ()
    lost_records: int = 0
    document: Mapping[str, Any] | None = None


async def reconcile(
    command: Sequence[str],
    values: Mapping[str, str],
    *,
    log: Path,
    within_ms: int,
    accounts: Collection[LossAccount],
    source_site: str,
) -> ReconcileResult:
    """Run the command with `{placeholders}` filled in; findings are seen from `source_site`.

    Raises OperationalFailure when the command could not compare, or exceeds its time.
    """
    arguments = [part.format_map(values) for part in command]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=output
        )
        try:
            async with asyncio.timeout(within_ms / 1000):
                text, _ = await process.communicate()
        except (TimeoutError, asyncio.CancelledError) as error:
            process.kill()
            await process.wait()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise OperationalFailure(f"reconciliation took longer than {within_ms} ms ({log})") from error
    if process.returncode not in (0, 1):
        tail = await asyncio.to_thread(_tail, log)
        raise OperationalFailure(f"reconciliation could not compare (exit code {process.returncode}): {tail}")
    document = last_json(text.decode(errors="replace"))
    findings = tuple((document or {}).get("findings", ()))
    if process.returncode == 0:
        return ReconcileResult(outcome=EQUAL, document=document)
    outcome, lost = judge_findings(findings, accounts, source_site=source_site)
    return ReconcileResult(outcome=outcome, findings=findings, lost_records=lost, document=document)


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-500:].strip()


def last_json(text: str) -> Mapping[str, Any] | None:
    """The JSON object at the end of the output: the whole output, or its last line."""
    for candidate in (text, text.strip().rpartition("\n")[2]):
        try:
            document = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
    return None


def judge_findings(
    findings: Sequence[Mapping[str, Any]], accounts: Collection[LossAccount], *, source_site: str
) -> tuple[str, int]:
    """The outcome is `as accounted` if only records differ, and only at or above the offset below
    which the last failover of each partition kept everything.

    Records that only the old site has, or has with another content, are lost and counted. Records
    that only the promoted site has were written there later. No account covers damage and
    duplicates.
    """
    last = {
        (item.topic, item.partition): (item.kept_below, account.from_site)
        for account in sorted(accounts, key=lambda account: account.epoch)
        for item in account.partitions
    }
    lost = 0
    for finding in findings:
        kept_below, from_site = last.get((finding["topic"], finding["partition"]), (1 << 62, ""))
        if finding["kind"] not in RECORDS_DIFFER or finding["first_offset"] < kept_below:
            return DIFFERENT, 0
        if finding["kind"] in ("diverged", "missing" if from_site == source_site else "extra"):
            lost += finding["last_offset"] - finding["first_offset"] + 1
    return (AS_ACCOUNTED, lost) if findings else (DIFFERENT, 0)
