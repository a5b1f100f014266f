"""Failovers as conversations: `tests/golden/playbook/*.txt`;
`tests/support/memory/failover_scene.py` has the commands.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import run_script
from tests.support.memory.failover_scene import FailoverScene

SCRIPTS = sorted((Path(__file__).parent / "playbook").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_playbook_decides_as_the_script_says(path: Path, is_golden_rewrite: bool) -> None:
    run_script(path, FailoverScene().answer, is_rewrite=is_golden_rewrite)
