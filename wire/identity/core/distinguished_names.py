"""The subject of a certificate as text, in the form that ACLs of Apache Kafka contain: RFC 2253, as
Java's `X500Principal.getName` writes it. Pure.

The most specific part comes first; parts are separated by a comma without a space. Of attributes
that RFC 2253 does not name, Java writes the object identifier and the encoded value in
hexadecimal, `1.2.840.113549.1.9.1=#16...`.
"""

from __future__ import annotations

from typing import Any, Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',+"\\<>;')
_ENCODINGS: Final = {
    12: "utf-8",
    18: "ascii",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    28: "utf-32-be",
    30: "utf-16-be",
}


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. ValueError where it is none."""
    from cryptography import x509  # large: a plaintext process does without

    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_part(attribute) for attribute in part) for part in reversed(subject.rdns))


def _part(attribute: Any) -> str:
    identifier, value = attribute.oid.dotted_string, attribute.value
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or not isinstance(value, str):
        return f"{identifier}=#{_encoded(attribute).hex()}"
    return f"{keyword}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


def _encoded(attribute: Any) -> bytes:
    tag = int(attribute._type.value)
    value = attribute.value
    content = value if isinstance(value, bytes) else value.encode(_ENCODINGS.get(tag, "utf-8"))
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content
