"""PEM as it stands in values of a properties file."""

from __future__ import annotations

import pytest

from wire.tls.core.entries import UnusableStore
from wire.tls.core.pem import CERTIFICATE, PRIVATE_KEY, armoured, unfolded

WHOLE = armoured(CERTIFICATE, bytes(range(100))) + armoured(CERTIFICATE, b"second")


@pytest.mark.parametrize(
    "value", [WHOLE, WHOLE.replace("\n", " "), WHOLE.replace("\n", "\\n"), f"a comment\n{WHOLE}\nanother one"]
)
def test_blocks_may_be_folded_into_one_line(value: str) -> None:
    assert unfolded(value, CERTIFICATE) == WHOLE


def test_a_locked_key_is_a_key_and_a_certificate_is_none() -> None:
    locked = armoured("ENCRYPTED PRIVATE KEY", b"locked")
    assert unfolded(WHOLE + locked, PRIVATE_KEY) == locked


@pytest.mark.parametrize(
    "value", ["", "5", WHOLE[:-10], WHOLE.replace("CERTIFICATE", "PRIVATE KEY"), WHOLE.replace("AAEC", "A*EC")]
)
def test_a_text_without_such_a_block_is_unusable(value: str) -> None:
    with pytest.raises(UnusableStore):
        unfolded(value, CERTIFICATE if "*" in value or "PRIVATE" in value else PRIVATE_KEY)
