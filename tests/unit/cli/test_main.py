"""A file that cannot be used and Ctrl-C are one message, whichever command meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import main


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what changes the process, not the command."""
    for name in ("expect_no_garbage", "prepare_standard_streams", "configure", "end_by_sigterm_as_by_ctrl_c"):
        monkeypatch.setattr(main, name, lambda *_, **__: None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "credentials password --name u --users {0}/users --password-file {0}/none",
            "{0}/none: No such file or directory",
        ),
        ("spark-cluster --dir {0}/file/cluster", "{0}/file/cluster"),
    ],
)
def test_no_command_ends_with_a_stack_trace_for_a_file(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.argv", ["antipode", *line.format(tmp_path).split()])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert f"error: {message.format(tmp_path)}" in capsys.readouterr().err


def test_ctrl_c_while_the_modules_of_a_command_are_imported_is_no_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "assemble", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().err) == (1, "interrupted\n")
