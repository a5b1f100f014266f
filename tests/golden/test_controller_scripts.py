"""The controller machine as conversations: `tests/golden/controller/*.txt`;
`tests/support/memory/controller_scene.py` has the commands.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import run_script
from tests.support.memory.controller_scene import ControllerScene

SCRIPTS = sorted((Path(__file__).parent / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_controller_decides_as_the_script_says(path: Path, is_golden_rewrite: bool) -> None:
    run_script(path, ControllerScene().answer, is_rewrite=is_golden_rewrite)
