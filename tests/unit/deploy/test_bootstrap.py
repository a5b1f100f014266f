"""The first half of set-up: installed packages, packages that an interruption left incomplete, and
refusals.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import bootstrap


@pytest.fixture
def site_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The package folder of an environment that set-up takes for its own."""
    monkeypatch.setattr(bootstrap, "ENVIRONMENT", tmp_path / "environment")
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / "environment" / "bin" / "python")
    folder = tmp_path / "environment" / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    return folder


def _install(site_packages: Path, name: str, *, is_whole: bool = True) -> Path:
    folder = site_packages / f"{name}.dist-info"
    folder.mkdir()
    (folder / "METADATA").touch()
    if is_whole:
        (folder / "RECORD").touch()
    return folder


def test_names_are_compared_as_pip_compares_them(site_packages: Path) -> None:
    _install(site_packages, "Typing_Extensions-4.16.0")
    assert bootstrap._installed() == {"typing-extensions": "4.16.0"}


def test_a_package_that_was_cut_off_does_not_count_and_is_forgotten(site_packages: Path) -> None:
    cut_off = _install(site_packages, "rich-15.0.0", is_whole=False)
    whole = _install(site_packages, "kazoo-2.11.0")
    assert bootstrap._installed() == {"kazoo": "2.11.0"}
    bootstrap._forget_half_installed()
    assert not cut_off.exists()
    assert whole.exists()


def test_every_line_of_the_lock_is_a_pin() -> None:
    lines = bootstrap.REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    assert len(bootstrap._pins()) == sum(not line.startswith("#") for line in lines)


def test_a_folder_that_is_no_environment_is_not_removed(site_packages: Path) -> None:
    with pytest.raises(bootstrap.SetupFailure, match="is not a virtual environment: move it away"):
        bootstrap._ensure_environment()
    assert site_packages.exists()
