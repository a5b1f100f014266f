"""An authority for a test, and files of certificates with any names."""

from __future__ import annotations

from pathlib import Path

from cli.credentials.authority import (
    AUTHORITY_CERTIFICATE,
    CERTIFICATE_DAYS,
    PRIVATE,
    Authority,
    make_authority,
    save_authority,
    write_file,
)

HOSTS = ("127.0.0.1", "localhost")


class Identities:
    """Files below a directory; `authority` of their own, unless another one is given."""

    def __init__(self, directory: Path, *, authority: Authority | None = None) -> None:
        self.directory = directory
        self.authority = authority or make_authority("tests")
        save_authority(self.authority, directory)

    @property
    def trusted(self) -> Path:
        """The authority's certificate."""
        return self.directory / AUTHORITY_CERTIFICATE

    def issue(self, name: str, *uris: str, days: int = CERTIFICATE_DAYS) -> Path:
        """A file of a key and a certificate with these URIs, for this machine. One for 0 days has
        expired already.
        """
        file = self.directory / f"{name}.pem"
        write_file(file, self.authority.issue(common_name=name, uris=uris, hosts=HOSTS, days=days), mode=PRIVATE)
        return file

    def control(self, name: str, *uris: str) -> dict[str, str]:
        """The options of a process with such a certificate."""
        return {
            "antipode.control.ssl.truststore.location": str(self.trusted),
            "antipode.control.ssl.keystore.location": str(self.issue(name, *uris)),
        }
