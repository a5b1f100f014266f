"""Certificates of the control plane out of the files of an operator."""

from __future__ import annotations

from pathlib import Path

from tests.support.security.identities import Identities
from wire.access.credentials import Credentials
from wire.access.settings import load_control_settings


def test_a_key_without_a_password_is_read_although_one_is_given(tmp_path: Path) -> None:
    """Listeners read it too; a daemon must not end with the traceback of another library."""
    identities = Identities(tmp_path)
    properties = {
        "antipode.control.ssl.keystore.location": str(identities.issue("a-1")),
        "antipode.control.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "antipode.control.ssl.key.password": "for another key",
    }
    assert Credentials(load_control_settings(properties)).server() is not None
