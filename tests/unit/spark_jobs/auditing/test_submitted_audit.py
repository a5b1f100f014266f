"""The audit as a program for spark-submit. Promised: it reads each site's own copies, and refuses
brokers of another site than the named one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.process import OperationalFailure
from spark_jobs import audit
from spark_jobs.auditing.audit_run import Audit, AuditRequest

SITES = {"a1:9092": "a", "b1:9092": "b", "kafka:9092": ""}


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(bootstrap: str) -> str:
        if bootstrap not in SITES:
            raise OperationalFailure(f"the site at {bootstrap} cannot be asked")
        return SITES[bootstrap]

    monkeypatch.setattr(audit, "site_name", named)


def test_each_sites_own_copies_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[AuditRequest] = []
    monkeypatch.setattr(audit, "session", lambda *_, **__: None)
    monkeypatch.setattr(Audit, "run_until_end", lambda audit: requests.append(audit.request))
    state = ("--state", str(tmp_path), "--once")
    assert audit.main(["--site", "a=a1:9092", "--site", "b=b1:9092", *state]) == 0
    (request,) = requests
    assert request.options == {"a": {"antipode.site": "a"}, "b": {"antipode.site": "b"}}
    assert audit.main(["--site", "a=a1:9092", "--site", "c=b1:9092", *state]) == 1
    assert capsys.readouterr().err == "error: --site c=b1:9092: these brokers are those of site b\n"


def test_brokers_of_no_site_are_read_as_by_a_consumer_and_silent_ones_are_asked_later() -> None:
    assert audit.site_options("a", "kafka:9092") == {}
    assert audit.site_options("b", "silent:9092") == {"antipode.site": "b"}
