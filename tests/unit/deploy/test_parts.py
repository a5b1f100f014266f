"""Finding the outside programs: accepted ones, refused ones, and the text of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import parts
from runtime.process import OperationalFailure


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No Java, no toxiproxy: PATH is one empty folder, which is returned; the parts folder is
    empty.
    """
    on_path = tmp_path / "bin"
    on_path.mkdir()
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(parts.PARTS_DIRECTORY_VARIABLE, str(tmp_path / "parts"))
    for search in (parts.java, parts.toxiproxy):
        search.cache_clear()
    yield on_path
    for search in (parts.java, parts.toxiproxy):
        search.cache_clear()


def _program(path: Path, output: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n", encoding="ascii")
    path.chmod(0o755)
    return path


def _java(path: Path, version: str, home: str = "/usr/lib/some-java") -> Path:
    return _program(path, f"    java.home = {home}\n    java.specification.version = {version}")


def test_a_missing_java_is_named_with_what_to_do(bare_machine: Path) -> None:
    with pytest.raises(OperationalFailure, match=r"no Java 17 or newer \(none found.*make setup"):
        parts.java()


def test_an_old_java_is_refused_by_its_version(bare_machine: Path) -> None:
    _java(bare_machine / "java", "11")
    with pytest.raises(OperationalFailure, match="java: is Java 11"):
        parts.java()


def test_the_version_of_the_old_scheme_is_understood(bare_machine: Path) -> None:
    _java(bare_machine / "java", "1.8")
    with pytest.raises(OperationalFailure, match="is Java 8"):
        parts.java()


def test_java_home_goes_before_path(bare_machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(bare_machine / "java", "17")
    named = _java(tmp_path / "jdk" / "bin" / "java", "21", home=str(tmp_path / "jdk"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert parts.java() == parts.Java(executable=named, home=tmp_path / "jdk", version=21)


def test_a_java_home_that_holds_nothing_is_passed_over(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(bare_machine / "java", "17")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "nothing"))
    assert parts.java().version == 17


def test_the_installed_wrapper_is_spark_s_home_not_the_runtime_behind_it(bare_machine: Path, tmp_path: Path) -> None:
    _java(tmp_path / "parts" / "java" / "bin" / "java", "25", home="/wheel/jre")
    assert parts.spark_environment() == {"JAVA_HOME": str(tmp_path / "parts" / "java")}


def test_another_toxiproxy_version_is_refused(bare_machine: Path) -> None:
    _program(bare_machine / "toxiproxy-server", "toxiproxy-server version 2.5.0")
    with pytest.raises(OperationalFailure, match=r"toxiproxy-server is 2\.5\.0.*make setup.*--no-proxy"):
        parts.toxiproxy()


def test_the_installed_toxiproxy_goes_before_path(bare_machine: Path, tmp_path: Path) -> None:
    _program(bare_machine / "toxiproxy-server", "toxiproxy-server version 2.5.0")
    installed = tmp_path / "parts" / "bin" / "toxiproxy-server"
    _program(installed, f"toxiproxy-server version {parts.TOXIPROXY_VERSION}")
    assert parts.toxiproxy() == installed


def test_the_installed_pyspark_ships_every_jar_of_a_zookeeper_server() -> None:
    assert {jar.name for jar in parts.zookeeper_jars()} >= set(parts.ZOOKEEPER_JARS)
