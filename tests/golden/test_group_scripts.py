"""The group machine as conversations: `tests/golden/groups/*.txt`; the commands are in
`tests/support/memory/group_script.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import run_script
from tests.support.memory.group_script import GroupScript

SCRIPTS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_groups_answer_as_the_script_says(path: Path, is_golden_rewrite: bool) -> None:
    run_script(path, GroupScript().answer, is_rewrite=is_golden_rewrite)
