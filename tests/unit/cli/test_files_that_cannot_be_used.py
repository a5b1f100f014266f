"""A file that cannot be read or written is one message, whichever command meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import main


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
    # these change the process, not the command
    for name in ("expect_no_garbage", "prepare_standard_streams", "configure", "end_by_sigterm_as_by_ctrl_c"):
        monkeypatch.setattr(main, name, lambda *_, **__: None)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert f"error: {message.format(tmp_path)}" in capsys.readouterr().err
