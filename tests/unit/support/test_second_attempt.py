"""The tests with processes that `make test` runs a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.second_attempt import REPEATED_MAX, main, refusal_of

ALWAYS_FAILS = "def test_it():\n    assert False\n"
PASSES_SECOND = """
from pathlib import Path

def test_it():
    noted = Path(__file__).with_name("noted")
    was_noted = noted.exists()
    noted.touch()
    assert was_noted
"""


def test_only_few_tests_without_faults_are_run_twice() -> None:
    integration = [f"tests/integration/test_clients.py::test_{number}" for number in range(REPEATED_MAX + 1)]
    assert not refusal_of(integration[:REPEATED_MAX])
    assert "at most" in refusal_of(integration)
    assert "tests/chaos/test_lost_site.py::test_it" in refusal_of(["tests/chaos/test_lost_site.py::test_it"])
    assert "tests/sim/test_links.py::test_it" in refusal_of([*integration[:1], "tests/sim/test_links.py::test_it"])
    assert refusal_of([])


@pytest.mark.parametrize(
    ("code", "folder", "expected"),
    [
        (ALWAYS_FAILS, "integration", "failed twice"),
        (PASSES_SECOND, "integration", "passed only by itself"),
        (PASSES_SECOND, "chaos", "no second attempt"),
    ],
)
def test_the_second_attempt_decides(
    code: str,
    folder: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tests = tmp_path / "tests" / folder
    tests.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tests / "test_one.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    status = main(tmp_path / "cache", [f"tests/{folder}"])
    assert expected in capfd.readouterr().out
    assert (status == 0) == (expected == "passed only by itself")
