"""Class archives: the JVMs that use one; an archive that does not fit or cannot be made is left
out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import class_archives, parts
from deploy.class_archives import ClassArchive
from runtime.process import OperationalFailure

_JAVA = """\
#!/bin/sh
echo '    java.home = /usr/lib/some-java'
echo '    java.specification.version = 17'
for argument in "$@"; do
    case "$argument" in
        -XX:SharedClassListFile=*) /bin/cat "${argument#*=}" > "$(/usr/bin/dirname "$0")/classes" ;;
        -XX:SharedArchiveFile=*) test -e "$(/usr/bin/dirname "$0")/broken" || echo archive > "${argument#*=}" ;;
    esac
done
"""


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A Java that writes archives, and the names of the archived classes into `classes`. While
    there is a file `broken`, it writes no archive.
    """
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA, encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(parts.PARTS_DIRECTORY_VARIABLE, str(tmp_path / "parts"))
    parts.java.cache_clear()
    yield program
    parts.java.cache_clear()


@pytest.fixture
def archive(java: Path, tmp_path: Path) -> ClassArchive:
    """An archive of a program with one jar."""
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"jar")
    made = ClassArchive(name="some", jars=lambda: (jar,))
    made.directory.mkdir(parents=True)
    return made


def _lists(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "1.lst", tmp_path / "2.lst"]
    files[0].write_text("java/lang/Object\nA\n", encoding="ascii")
    files[1].write_text("java/lang/Object\nB\n", encoding="ascii")
    return files


def test_without_an_archive_a_jvm_gets_no_option(archive: ClassArchive) -> None:
    assert archive.options() == []


def test_an_archive_of_several_lists_has_each_class_once_and_is_used(
    archive: ClassArchive, java: Path, tmp_path: Path
) -> None:
    archive.make(_lists(tmp_path))
    assert (java.parent / "classes").read_text(encoding="ascii") == "java/lang/Object\nA\nB\n"
    assert archive.options()[0] == f"-XX:SharedArchiveFile={archive.file}"
    assert list(archive.directory.iterdir()) == [archive.file]


def test_when_a_jar_or_java_changes_the_archive_is_not_used_and_the_next_one_replaces_it(
    archive: ClassArchive, java: Path, tmp_path: Path
) -> None:
    for file in (tmp_path / "some.jar", java):
        archive.make(_lists(tmp_path))
        os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
        assert archive.options() == []
    archive.make(_lists(tmp_path))
    assert list(archive.directory.iterdir()) == [archive.file]


def test_a_java_that_writes_no_archive_is_a_failure_that_leaves_nothing(
    archive: ClassArchive, java: Path, tmp_path: Path
) -> None:
    (java.parent / "broken").touch()
    with pytest.raises(OperationalFailure, match="wrote no archive of some's classes"):
        archive.make(_lists(tmp_path))
    assert list(archive.directory.iterdir()) == []


def test_spark_gets_the_options_of_its_archive_by_the_environment(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(class_archives, "SPARK", archive)
    assert class_archives.spark_environment()[class_archives.SPARK_OPTIONS_VARIABLE] == ""
    made = tmp_path / "made.jsa"
    made.touch()
    archive.keep(made)
    options = class_archives.spark_environment()[class_archives.SPARK_OPTIONS_VARIABLE]
    assert options.split()[0] == f"-XX:SharedArchiveFile={archive.file}"
