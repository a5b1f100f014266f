"""RC2 against the examples of RFC 2268."""

from __future__ import annotations

import pytest

from wire.tls.core.rc2 import BLOCK_BYTES, decrypt_cbc


@pytest.mark.parametrize(
    ("key", "effective_bits", "plain", "encrypted"),
    [
        ("0000000000000000", 63, "0000000000000000", "ebb773f993278eff"),
        ("ffffffffffffffff", 64, "ffffffffffffffff", "278b27e42e2f0d49"),
        ("3000000000000000", 64, "1000000000000001", "30649edf9be7d2c2"),
        ("88", 64, "0000000000000000", "61a8a244adacccf0"),
        ("88bca90e90875a", 64, "0000000000000000", "6ccf4308974c267f"),
        ("88bca90e90875a7f0f79c384627bafb2", 64, "0000000000000000", "1a807d272bbe5db1"),
        ("88bca90e90875a7f0f79c384627bafb2", 128, "0000000000000000", "2269552ab0f85ca6"),
        (
            "88bca90e90875a7f0f79c384627bafb216f80a6f85920584c42fceb0be255daf1e",
            129,
            "0000000000000000",
            "5b78d3a43dfff1f1",
        ),
    ],
)
def test_the_examples_of_the_rfc(key: str, effective_bits: int, plain: str, encrypted: str) -> None:
    found = decrypt_cbc(bytes.fromhex(key), bytes(BLOCK_BYTES), bytes.fromhex(encrypted), effective_bits=effective_bits)
    assert found.hex() == plain


def test_each_block_is_chained_to_the_one_before() -> None:
    key, block = bytes.fromhex("88bca90e90875a7f0f79c384627bafb2"), bytes.fromhex("2269552ab0f85ca6")
    iv = b"\x01" * BLOCK_BYTES
    assert decrypt_cbc(key, iv, block + block) == iv + block
