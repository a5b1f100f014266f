"""Property files and settings: how they are read, and the errors for wrong values."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from runtime.configuration import (
    ConfigurationError,
    Settings,
    check_all,
    load_settings,
    read_properties,
    unknown_keys,
)


class Sample(Settings):
    """Two settings with Kafka-like names."""

    node_id: int = Field(alias="node.id", ge=0, description="accepted: a number from 0")
    host: str = Field(default="localhost", alias="host.name")


def test_a_properties_file_is_read_with_comments_continuations_and_both_separators(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\n! too\nnode.id = 3\nhost.name: example\nlist=a,\\\n   b\nempty=\nurl=http://x:1\n")
    assert read_properties(file) == {
        "node.id": "3",
        "host.name": "example",
        "list": "a,b",
        "empty": "",
        "url": "http://x:1",
    }


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"\xef\xbb\xbfa.b=1\r\nc=x,\\\r\n  y\r\nd=2\r\n", {"a.b": "1", "c": "x,y", "d": "2"}),
        ("# gr\u00f6\u00dfer\na=M\u00fcnchen\n".encode("latin-1"), {"a": "M\u00fcnchen"}),
        ("a=M\u00fcnchen\u2028x\n".encode(), {"a": "M\u00fcnchen\u2028x"}),
        (
            b"clusters east, west\neast->west.enabled = true\nc  :  d\ne",
            {"clusters": "east, west", "east->west.enabled": "true", "c": "d", "e": ""},
        ),
        (b"a=b\\=c\\:d\\u00e9 \\#\nk\\:k=v", {"a": "b=c:d\u00e9 #", "k:k": "v"}),
        (
            b"a=x\\\\\nb=orders\\.eu,\\\\d+\nc=x\\\\\\\n  y\nd=end\\",
            {"a": "x\\", "b": r"orders\.eu,\d+", "c": "x\\y", "d": "end"},
        ),
        (b"a=1\n\\\n\nb=2\nc=\\", {"a": "1", "b": "2", "c": ""}),
    ],
    ids=[
        "mark and CRLF",
        "Latin-1",
        "only line ends end lines",
        "separators",
        "escapes",
        "backslashes",
        "an empty line",
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path, content: bytes, wanted: dict[str, str]) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(content)
    assert read_properties(file) == wanted


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.properties cannot be read: No such file"):
        read_properties(tmp_path / "none.properties")


def test_settings_are_filled_by_dotted_name() -> None:
    assert load_settings(Sample, {"node.id": "7"}).node_id == 7


@pytest.mark.parametrize("value", ["-1", "x", ""])
def test_a_wrong_value_is_answered_with_key_value_and_what_is_accepted(value: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings(Sample, {"node.id": value})
    assert raised.value.key == "node.id"
    assert repr(value) in str(raised.value)
    assert "accepted: a number from 0" in str(raised.value)


def test_a_missing_required_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"node\.id='\(not set\)'"):
        load_settings(Sample, {})


def test_every_wrong_value_of_a_file_is_named_once() -> None:
    class Other(Settings):
        """Settings of another part of the process, which reads the same file."""

        node_id: int = Field(alias="node.id", ge=0)
        site: int = Field(alias="site.number", description="a number")

    file = {"node.id": "x", "site.number": "y", "host.name": 5}
    with pytest.raises(ConfigurationError) as raised:
        check_all(lambda: load_settings(Sample, file), lambda: load_settings(Other, file))
    lines = str(raised.value).splitlines()
    assert [line.partition(" is not usable")[0] for line in lines] == [
        "configuration node.id='x'",
        "configuration host.name=5",
        "configuration site.number='y'",
    ]
    assert raised.value.key == "node.id"


def test_unknown_keys_are_listed() -> None:
    assert unknown_keys(Sample, {"node.id": 1, "z.key": 1, "a.key": 2, "host": "x"}) == ["a.key", "z.key"]
