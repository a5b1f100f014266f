"""The first half of `make setup`: a virtual environment with exactly the pinned packages, from any
Python 3.11 or newer.

The machine's own Python runs it before anything is installed, so it uses only the standard library
and imports no module of Antipode. Installed packages are read from the environment itself, not from
a stamp: after an interruption, or when a pin has changed, the next run corrects the differences.
Then it runs `setup.py` inside the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS = ROOT / "deploy" / "requirements.txt"
INSTALLED_MARK = ENVIRONMENT / "antipode-installed"
# with the other kind of editable install, each start of Python imports a finder module (20 ms);
# this one adds an entry to sys.path
LINK_BY_PATH = ("--config-settings", "editable_mode=compat")
PYTHON_VERSION_MIN = (3, 11)
LARGE_DOWNLOAD = re.compile(r"\s*Downloading (\S+) \((\d{2,}(?:\.\d+)? MB|[\d.]+ GB)\)")
OUTPUT_LINES_SHOWN = 15


class SetupFailure(Exception):
    """Set-up cannot continue: one message that names the missing part and what to do."""


def say(line: str) -> None:
    """Print a progress line."""
    print(f"setup: {line}", flush=True)


def main() -> int:
    """Set everything up; return the exit code."""
    try:
        _check_python()
        with _alone():
            _ensure_environment()
            _ensure_packages()
            _ensure_project()
            return subprocess.run([str(PYTHON), "-m", "deploy.setup", *sys.argv[1:]], cwd=ROOT, check=False).returncode
    except SetupFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1


def _check_python() -> None:
    if sys.version_info < PYTHON_VERSION_MIN:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupFailure(
            f"Python 3.11 or newer is needed, {sys.executable} is {found}: install one, or name it: make setup PYTHON=..."
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other set-up of this checkout runs: two at once would remove each other's
    files.
    """
    parts = ROOT / ".parts"
    parts.mkdir(exist_ok=True)
    # a kernel lock: a killed set-up leaves nothing behind
    with (parts / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up of this checkout is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ensure_environment() -> None:
    if _is_usable_environment():
        return
    started = time.monotonic()
    if ENVIRONMENT.exists():
        if not (ENVIRONMENT / "pyvenv.cfg").exists() and any(ENVIRONMENT.iterdir()):
            raise SetupFailure(f"{ENVIRONMENT} exists and is not a virtual environment: move it away")
        shutil.rmtree(ENVIRONMENT)
    made = subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        _make_environment_without_ensurepip()
    say(f"virtual environment {ENVIRONMENT.name} with Python {sys.version.split()[0]} ({_since(started)})")


def _is_usable_environment() -> bool:
    """True if the environment has a Python that is new enough and a pip; an interrupted set-up
    lacks at least one.
    """
    probe = f"import sys, pip; sys.exit(sys.version_info < {PYTHON_VERSION_MIN})"
    try:
        return subprocess.run([str(PYTHON), "-c", probe], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _make_environment_without_ensurepip() -> None:
    """Create an environment without ensurepip, which Debian moves to the package python3-venv. An
    installed pip or Debian's wheel of pip then installs pip.
    """
    say("this Python has no ensurepip (Debian's package python3-venv); looking for a pip elsewhere")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise SetupFailure(
            f"no virtual environment can be made: install the Debian package python3-venv, then run make setup again\n{_tail(made.stderr)}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        for installer in _pip_elsewhere(Path(scratch)):
            installed = subprocess.run([*installer, "install", "--quiet", "pip"], capture_output=True, check=False)
            if installed.returncode == 0 and _is_usable_environment():
                return
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    raise SetupFailure(
        "no pip for the virtual environment: install the Debian package python3-venv (apt-get install python3-venv), "
        "then run make setup again"
    )


def _pip_elsewhere(scratch: Path) -> Iterator[list[str]]:
    """Commands that may install pip into the environment, the least intrusive one first."""
    # a pip outside the environment can install into it (pip 22.3 and newer), and needs no download
    yield [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    download = shutil.which("apt-get")
    if download is None or shutil.which("dpkg-deb") is None:
        return
    command = [download, "download", "--quiet", "python3-pip-whl"]
    # package lists may be older than the archive; only root may renew them
    if subprocess.run(command, cwd=scratch, capture_output=True, check=False).returncode != 0 and os.geteuid() == 0:
        subprocess.run([download, "update", "--quiet"], capture_output=True, check=False)
        subprocess.run(command, cwd=scratch, capture_output=True, check=False)
    for package in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(scratch)], capture_output=True, check=False)
    for wheel in scratch.glob("usr/share/python-wheels/pip-*.whl"):
        yield [str(PYTHON), str(wheel / "pip")]


def _ensure_packages() -> None:
    wanted = _pins()
    missing = sorted(set(wanted.items()) - set(_installed().items()))
    if not missing:
        say(f"{len(wanted)} Python packages as pinned")
        return
    named = ", ".join(name for name, _ in missing[:6]) + (", ..." if len(missing) > 6 else "")
    size = "; pyspark alone is 450 MB" if "pyspark" in dict(missing) else ""
    say(f"installing {len(missing)} of {len(wanted)} Python packages ({named}){size}")
    started = time.monotonic()
    _forget_half_installed()
    # the pins include indirect dependencies, so pip must not add packages
    _pip("install", "--use-pep517", "--no-deps", "--requirement", str(REQUIREMENTS))
    different = sorted(set(wanted.items()) - set(_installed().items()))
    if different:
        raise SetupFailure(f"pip reported success, but these packages are not as pinned: {different}")
    say(f"{len(wanted)} Python packages installed ({_since(started)})")


def _pins() -> dict[str, str]:
    pins: dict[str, str] = {}
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        name, separator, version = line.partition("==")
        if separator and not line.startswith("#"):
            pins[_normalized(name)] = version.strip()
    return pins


def _installed() -> dict[str, str]:
    """Names and versions of all packages in the environment. Reads only the metadata folders, which
    takes a few milliseconds.
    """
    found: dict[str, str] = {}
    for folder in ENVIRONMENT.glob("lib/python3*/site-packages/*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
        # written last: without it, the installation of the package was interrupted
        if (folder / "RECORD").exists():
            found[_normalized(name)] = version
    return found


def _forget_half_installed() -> None:
    """Remove the metadata of partly installed packages: pip would treat them as installed, and
    cannot remove a package without RECORD.
    """
    for folder in ENVIRONMENT.glob("lib/python3*/site-packages/*.dist-info"):
        if not (folder / "RECORD").exists():
            shutil.rmtree(folder)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower().strip()


def _ensure_project() -> None:
    """Install the project itself, editable, so that `antipode` runs this checkout."""
    known = ((ROOT / "pyproject.toml").read_bytes(), *(text.encode() for text in (str(ROOT), *LINK_BY_PATH)))
    state = hashlib.sha256(b"".join(known)).hexdigest()
    if INSTALLED_MARK.exists() and INSTALLED_MARK.read_text(encoding="ascii") == state:
        return
    _pip("install", "--no-deps", "--no-build-isolation", *LINK_BY_PATH, "--editable", str(ROOT))
    # written last: an interrupted installation is repeated
    INSTALLED_MARK.write_text(state, encoding="ascii")
    say(f"command {PYTHON.parent.relative_to(ROOT) / 'antipode'} installed")


def _pip(*arguments: str) -> None:
    """Run pip in the environment, and print only large downloads. Raises SetupFailure with pip's
    last lines.
    """
    command = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip())
        large = LARGE_DOWNLOAD.match(line)
        if large:
            say(f"  fetching {large[1].rpartition('/')[2]} ({large[2]})")
    if process.wait() != 0:
        raise SetupFailure(
            "pip could not install the Python packages. Its last lines:\n"
            + _tail("\n".join(lines))
            + "\nCheck that pip can reach its package index (pip config list), then run make setup again"
        )


def _tail(output: str) -> str:
    return "\n".join(f"    {line}" for line in output.splitlines()[-OUTPUT_LINES_SHOWN:])


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
