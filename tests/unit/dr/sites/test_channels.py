"""The hints of an unanswered call about certificates."""

from __future__ import annotations

import grpc
import pytest

from dr.sites import channels
from dr.sites.channels import problem_of

REFUSED = "last error: UNAVAILABLE: ipv4:127.0.0.1:9095: Socket closed"
UNTRUSTED = "Tls handshake failed: OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate"


@pytest.mark.parametrize(
    ("details", "is_protected", "hint"),
    [
        (REFUSED, False, "needs --command-config"),
        (REFUSED, True, "antipode.control.ssl.keystore.location"),
        (UNTRUSTED, True, "antipode.control.ssl.truststore.location"),
        ("Connection refused", True, ""),
        ("Connection refused", False, ""),
    ],
)
def test_a_failed_handshake_names_the_option(
    monkeypatch: pytest.MonkeyPatch, details: str, is_protected: bool, hint: str
) -> None:
    monkeypatch.setattr(channels, "is_control_plane_protected", lambda: is_protected)
    metadata = grpc.aio.Metadata()
    problem = problem_of(grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, details=details))
    assert problem.startswith(f"UNAVAILABLE: {details}")
    assert hint in problem
    assert ("(" in problem) is bool(hint)
