"""The directory of an archive on a local disk, and what addresses mean. Promised: of several that
create a file one succeeds; readers see no part of a small file; an archiver that was paused cannot
name files that its successor has removed; a wrong address is refused with what is accepted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import BATCHES, RECORDS, UNFINISHED_SUFFIX, next_manifest
from spark_jobs.archiving.directories import directory_at
from spark_jobs.archiving.local_directory import LocalDirectory
from spark_jobs.archiving.s3_directory import client_arguments
from spark_jobs.archiving.store import MANIFESTS, UNFINISHED, ArchiveStore

CREATORS = 8


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return ArchiveStore.at((tmp_path / "of sites").as_uri())


def test_of_several_that_create_a_file_one_succeeds_and_its_bytes_are_there(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    documents = [b"%d" % creator * 1_000 for creator in range(CREATORS)]

    def created(data: bytes) -> bool:
        with suppress(FileExistsError):
            directory.create("manifests/1.json", data)
            return True
        return False

    with ThreadPoolExecutor(CREATORS) as pool:
        successes = list(pool.map(created, documents))
    (winner,) = [data for data, is_success in zip(documents, successes, strict=True) if is_success]
    assert (tmp_path / "manifests" / "1.json").read_bytes() == winner
    assert directory.sizes("") == {"manifests/1.json": 1_000}


def test_files_are_replaced_listed_and_removed(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path / "new")
    assert (directory.sizes("none"), directory.size("none")) == ({}, None)
    for content in (b"first", b"second one"):
        with directory.open_writer("unfinished/file") as file:
            file.write(content)
        directory.replace("unfinished/file", "a/b/file")
        directory.put("a/small", content)
    assert directory.sizes("a") == {"a/b/file": 10, "a/small": 10}
    assert (directory.size("a/small"), directory.size("a"), directory.sizes("unfinished")) == (10, None, {})
    with directory.open_reader("a/b/file") as file:
        assert file.read() == b"second one"
    directory.remove("a/small")
    with pytest.raises(FileNotFoundError):
        directory.remove("a/small")


def test_an_archiver_that_was_paused_cannot_name_files_that_its_successor_removed(store: ArchiveStore) -> None:
    of_the_paused = next_manifest(store.manifests(), BATCHES)
    store.put(f"{BATCHES}/file", b"1")
    store.put(f"{MANIFESTS}/1.json{UNFINISHED_SUFFIX}", b"1")
    store.put(f"{UNFINISHED}/file", b"1")
    (fence,) = store.remove_unnamed([], BATCHES)
    assert store.unnamed(set()) == []
    with pytest.raises(OperationalFailure, match=r"00000001\.json already exists: another archiver"):
        store.write_manifest(replace(of_the_paused, started_at_ms=5))
    assert store.manifests() == [fence]
    assert next_manifest(store.manifests(), BATCHES).number == 2


def test_parts_of_files_alone_take_no_number(store: ArchiveStore) -> None:
    store.put(f"{UNFINISHED}/file", b"1")
    assert store.remove_unnamed([], RECORDS) == []
    assert (store.unnamed(set()), store.manifests()) == ([], [])


def test_a_manifest_whose_answer_was_lost_is_written_once(store: ArchiveStore) -> None:
    manifest = next_manifest([], BATCHES, started_at_ms=1)
    store.write_manifest(manifest)
    store.write_manifest(manifest)
    assert store.manifests() == [manifest]


@pytest.mark.parametrize(
    "address", ["ftp://somewhere/archive", "archive", "file://host/archive", "hdfs://host:8020", "s3a:///archive", ""]
)
def test_an_address_of_no_directory_is_refused_with_what_is_accepted(address: str) -> None:
    with pytest.raises(OperationalFailure, match="accepted: file:///dir, hdfs://host:port/dir, s3a://bucket/dir"):
        directory_at(address)


def test_a_directory_that_cannot_be_made_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ArchiveStore.at((tmp_path / "file" / "archive").as_uri())
    with pytest.raises(OperationalFailure, match=r"the archive file:.*/file/archive cannot be used: .*Not a directory"):
        store.put("claims/1.json", b"1")


def test_an_address_may_name_the_store_and_its_key() -> None:
    assert client_arguments("s3a://bucket/dir") == {}
    query = "region=eu-1&scheme=http&endpoint_override=127.0.0.1%3A9000"
    assert client_arguments(f"s3://key:se%2Fcret@bucket/dir?{query}") == {
        "endpoint_url": "http://127.0.0.1:9000",
        "region_name": "eu-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "se/cret",
    }
