"""The command antipode, run from a test's own loop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.support.processes.fork_server import run_antipode


async def antipode(*arguments: str, is_well: bool = True) -> Any:
    """A command's JSON output. Its exit code must be 0 if `is_well`, and 1 otherwise."""
    ended = await asyncio.to_thread(run_antipode, *arguments)
    assert ended.returncode == (0 if is_well else 1), ended.stderr
    return json.loads(ended.stdout)
