"""Runs an object store with S3's interface (Versity S3 Gateway) as a child process on loopback, for
long tests. Not needed to run anything.

`install` builds it into the parts folder, from its Go module; the tests do that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy import parts
from deploy.go_toolchain import compilers, install_program
from deploy.ports import LOOPBACK, free_port, is_free
from runtime.children import Child
from runtime.process import OperationalFailure

VERSION: Final = "1.8.0"
PROGRAM: Final = "github.com/versity/versitygw/cmd/versitygw"
ACCESS_KEY: Final = "antipode"
SECRET_KEY: Final = ACCESS_KEY


def executable() -> Path:
    """The place of the program."""
    return parts.parts_directory() / "bin" / f"versitygw-{VERSION}"


def install(say: Callable[[str], None]) -> None:
    """Build the program if it is missing. Raises OperationalFailure with the compiler's last lines
    if no Go works.
    """
    if executable().is_file():
        return
    refusals: list[str] = []
    executable().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parts.parts_directory(), prefix="build-") as scratch_name:
        scratch = Path(scratch_name)
        for go in compilers(scratch, say, refusals):
            failure = install_program(go, scratch, f"{PROGRAM}@v{VERSION}")
            if failure is None:
                (scratch / "bin" / "versitygw").replace(executable())
                return
            refusals.append(f"{go}: {failure}")
    raise OperationalFailure("the S3 gateway could not be built:\n" + "\n".join(refusals))


@dataclass(slots=True, kw_only=True)
class ObjectStore:
    """A store with everything under `directory`; each folder of its data is a bucket."""

    directory: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """Its address, as for AWS_ENDPOINT_URL."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients of S3 find it and log in."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def child(self) -> Child:
        """Its process."""
        command = [str(executable()), "--access", ACCESS_KEY, "--secret", SECRET_KEY]
        command += ["--port", f"{LOOPBACK}:{self.port}", "posix", str(self.directory / "data")]
        return Child(name="object-store", directory=self.directory, command=command, log=self.directory / "store.log")

    def make_bucket(self, name: str) -> None:
        """Make a bucket, before or while the store runs."""
        (self.directory / "data" / name).mkdir(parents=True, exist_ok=True)

    def is_serving(self) -> bool:
        """True when it listens."""
        return not is_free(self.port)
