"""`antipode credentials`: the users of an HTTP bridge."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from bridge.core.password_file import read_passwords
from cli.administration.credentials import app


def test_a_user_of_the_bridge_may_have_any_name(tmp_path: Path) -> None:
    users, password = tmp_path / "users", tmp_path / "password"
    password.write_text("straße\n", encoding="utf-8")
    names = ["anna", "jürgen", "李"]
    for name in names:
        arguments = ["password", "--name", name, "--users", str(users), "--password-file", str(password)]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert list(read_passwords(users.read_text(encoding="utf-8"))) == names
    assert sorted(tmp_path.iterdir()) == [password, users], "no draft stays"
