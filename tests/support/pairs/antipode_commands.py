"""The command antipode, run from a test's own loop."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.support.pairs.translate_links import (
    ROOT,
)


async def antipode(*arguments: str, is_well: bool = True) -> Any:
    """A command's JSON; it ends with 0 where all is well."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, complaint = await process.communicate()
    assert process.returncode == (0 if is_well else 1), complaint.decode()
    return json.loads(printed)
