"""The files of secured embedded sites are closed to other users of the machine, and stay good."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509

from cli.credentials.authority import load_authority, make_authority
from cli.embedding import security as module
from cli.embedding.layout_plan import Wishes, plan, ports_needed
from runtime.process import OperationalFailure


def test_directories_with_records_and_hashes_are_closed_to_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "use_command_config", lambda _: None)
    wishes = Wishes(sites=("a", "b"), brokers=1, directory=tmp_path, is_secure=True, has_bridge=True, has_arbiter=True)
    layout = plan(wishes, range(20_000, 20_000 + ports_needed(wishes)))
    assert layout.security is not None
    assert layout.arbiter is not None
    assert layout.bridge is not None
    (layout.sites[0].directory / "broker-1").mkdir(parents=True)  # of an earlier start
    module.secure(layout, layout.security)
    module.secure(layout, layout.security)
    parts = (*layout.sites, *layout.mirrors, layout.arbiter, layout.bridge)
    assert len(parts) >= 6
    assert {oct(part.directory.stat().st_mode & 0o777) for part in parts} == {"0o700"}
    readable = [file.name for file in layout.security.directory.iterdir() if file.stat().st_mode & 0o077]
    assert readable == ["ca.pem"]


def test_a_directory_that_cannot_be_closed_stops_the_start(tmp_path: Path) -> None:
    wishes = Wishes(sites=("a",), brokers=1, directory=tmp_path, is_secure=True)
    layout = plan(wishes, range(20_000, 20_000 + ports_needed(wishes)))
    assert layout.security is not None
    (tmp_path / "sites").write_text("a file")
    with pytest.raises(OperationalFailure, match="cannot be closed to other users"):
        module.secure(layout, layout.security)


@pytest.mark.parametrize("spoiled", ["ends soon", "of another authority", "torn"])
def test_a_certificate_that_no_process_would_trust_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: str
) -> None:
    monkeypatch.setattr(module, "use_command_config", lambda _: None)
    wishes = Wishes(sites=("a",), brokers=1, directory=tmp_path, is_secure=True)
    layout = plan(wishes, range(20_000, 20_000 + ports_needed(wishes)))
    assert layout.security is not None
    module.secure(layout, layout.security)
    authority = load_authority(layout.security.directory)
    file = layout.security.identity("broker-1")
    good = file.read_text()
    module.secure(layout, layout.security)
    assert file.read_text() == good
    made = {
        "ends soon": lambda: authority.issue(common_name="broker-1", days=1),
        "of another authority": lambda: make_authority("Antipode sites on this machine").issue(common_name="broker-1"),
        "torn": lambda: good[:100],
    }
    file.write_text(made[spoiled]())
    module.secure(layout, layout.security)
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    certificate.verify_directly_issued_by(authority.certificate)
    assert certificate.not_valid_after_utc > dt.datetime.now(dt.UTC) + dt.timedelta(days=300)
