"""The transaction machine as conversations: `tests/golden/transactions/*.txt`; commands in
`tests/support/memory/transaction_scene.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import run_script
from tests.support.memory.transaction_scene import TransactionScene

SCRIPTS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_transactions_answer_as_the_script_says(path: Path, is_golden_rewrite: bool) -> None:
    run_script(path, TransactionScene().answer, is_rewrite=is_golden_rewrite)
