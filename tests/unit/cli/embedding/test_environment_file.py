"""The files that `antipode up` keeps in its directory are replaced whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.embedding.layout_plan import Wishes
from cli.embedding.port_file import PORTS_FILE, layout_in_directory
from runtime.disk import RealDisk
from runtime.process import OperationalFailure


def test_an_up_that_is_killed_while_it_writes_its_ports_leaves_none_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes = Wishes(directory=tmp_path, sites=("a", "b"), brokers=1)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RealDisk, "rename", staticmethod(killed))
    with pytest.raises(KeyboardInterrupt):
        layout_in_directory(wishes)
    assert not (tmp_path / PORTS_FILE).exists()
    monkeypatch.setattr(RealDisk, "rename", staticmethod(os.replace))
    first = layout_in_directory(wishes)
    assert json.loads((tmp_path / PORTS_FILE).read_text())["sites"] == ["a", "b"]
    assert layout_in_directory(wishes) == first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "content: Input should be"),
        (b'{"sites": ["a", "b"], "brokers": 1}', "ports: Field required"),
        (b'{"sites": 7, "brokers": 1, "ports": []}', "sites: Input should be"),
        (b'{"sites": ["a", "b"], "brokers": 1, "ports": ["x"]}', "ports.0: Input should be"),
        (b'{"sites": ["a", "b"], "brokers": 1, "ports": [70000]}', "ports.0: Input should be"),
    ],
)
def test_a_malformed_file_is_one_message(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / PORTS_FILE).write_bytes(content)
    with pytest.raises(OperationalFailure, match=message):
        layout_in_directory(Wishes(directory=tmp_path, sites=("a", "b"), brokers=1))
