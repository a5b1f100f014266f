"""A prefix in a bucket of S3 or of a store with its interface.

Arrow reads, writes and lists; boto3 does what Arrow cannot: conditional writes and copies of more
than 5 GB. Both find credentials, region and endpoint as AWS's own tools do: in the environment
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), in the files of a profile,
or by the role of the machine. Arrow's parameters in an address (`region`, `scheme`,
`endpoint_override`) and a key in front of the bucket go before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from pyarrow import fs

CONDITION_FAILED: Final = ("PreconditionFailed", "ConditionalRequestConflict")
"""Answers of S3 to a conditional write: the object exists, or another one is written now."""


class S3Directory:
    """See `directories.Directory`. An object appears whole, when its upload is complete. There is
    no rename: `replace` copies inside the store and then deletes.
    """

    def __init__(self, files: Any, client: Any, bucket: str, prefix: str) -> None:
        self._files = files
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    @classmethod
    def at(cls, address: str) -> S3Directory:
        """The prefix of `s3a://bucket/prefix`."""
        arguments = client_arguments(address)
        session = boto3.Session()
        if "aws_access_key_id" not in arguments and session.get_credentials() is None:
            raise OSError(
                "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile"
            )
        files, root = fs.FileSystem.from_uri(address.replace("s3a://", "s3://", 1))
        bucket, _, prefix = root.strip("/").partition("/")
        with _os_errors():
            return cls(files, session.client("s3", **arguments), bucket, prefix)

    def check(self) -> None:
        """List one object."""
        with _os_errors():
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes by path."""
        selector = fs.FileSelector(self._place(folder), recursive=True, allow_not_found=True)
        found = [info for info in self._files.get_file_info(selector) if info.type == fs.FileType.File]
        return {info.path.removeprefix(self._place("")): info.size for info in found}

    def size(self, path: str) -> int | None:
        """Bytes, or None."""
        info = self._files.get_file_info(self._place(path))
        return int(info.size) if info.type == fs.FileType.File else None

    def open_writer(self, path: str) -> Any:
        """A file object: the object appears when it is closed."""
        return self._files.open_output_stream(self._place(path))

    def open_reader(self, path: str) -> Any:
        """A file object."""
        return self._files.open_input_file(self._place(path))

    def replace(self, path: str, target: str) -> None:
        """Copy, in parts if it is large, and delete."""
        source = {"Bucket": self._bucket, "Key": f"{self._prefix}{path}"}
        with _os_errors():
            self._client.copy(source, self._bucket, f"{self._prefix}{target}")
        self.remove(path)

    def put(self, path: str, data: bytes) -> None:
        """One write."""
        with _os_errors():
            self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}{path}", Body=data)

    def create(self, path: str, data: bytes) -> None:
        """One write on condition that there is no object of this name."""
        with _os_errors():
            self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}{path}", Body=data, IfNoneMatch="*")

    def remove(self, path: str) -> None:
        """Delete the object."""
        self._files.delete_file(self._place(path))

    def _place(self, path: str) -> str:
        return f"{self._bucket}/{self._prefix}{path}"


def client_arguments(address: str) -> dict[str, str]:
    """What an address says about the store, as arguments of boto3."""
    parts = urlsplit(address)
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    arguments = {}
    if endpoint := given.get("endpoint_override"):
        arguments["endpoint_url"] = f"{given.get('scheme', 'https')}://{endpoint}"
    if region := given.get("region"):
        arguments["region_name"] = region
    if parts.username and parts.password:
        arguments |= {
            "aws_access_key_id": unquote(parts.username),
            "aws_secret_access_key": unquote(parts.password),
        }
    return arguments


@contextmanager
def _os_errors() -> Iterator[None]:
    """Raise OSError for the errors of boto3; FileExistsError if a condition failed."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        raise (FileExistsError if code in CONDITION_FAILED else OSError)(str(error)) from error
    except (BotoCoreError, Boto3Error) as error:
        raise OSError(str(error)) from error
