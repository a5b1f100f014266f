"""The file of `--command-config`: keys that have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.shared import command_config
from cli.shared.command_config import use_command_config


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sasl.mechanim", "the key sasl.mechanim is not known and has no effect: did you mean sasl.mechanism?"),
        ("client.id", ""),
        ("ssl.enabled.protocols", ""),
        ("security.protocol", ""),
    ],
)
def test_a_misspelt_key_is_named_with_the_one_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, message: str
) -> None:
    monkeypatch.setattr(command_config, "_Given", type("Given", (), {}))
    file = tmp_path / "client.properties"
    file.write_text(f"{key}=PLAINTEXT\n")
    use_command_config(file)
    shown = capsys.readouterr().err
    assert (message in shown) if message else shown == ""
