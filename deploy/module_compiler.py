"""Compiles the modules of `runtime/compiled.py` with mypyc, for the Python of the virtual
environment.

The machine's C compiler is used, or the one in the `ziglang` wheel if there is none; the wheel (100
MB) is fetched while mypyc translates, into a scratch folder that is removed afterwards. If Python's
headers (Debian's python3-dev) are missing, they are unpacked out of Debian's own package, which
needs no root. On a machine without a working compiler, Python interprets the same sources:
everything works, and the check of records is slower.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runtime import compiled
from runtime.process import OperationalFailure

WHEEL: Final = "ziglang==0.17.1"
OPTIMIZATION: Final = "2"
"""Level 3 takes a third more time to compile and makes the code no faster."""
FLAGS: Final = f"-O{OPTIMIZATION} -fno-semantic-interposition -fvisibility=hidden"
"""Calls between functions of one module are inlined only if no other library may override them."""
OUTPUT_LINES_SHOWN: Final = 15
LIMIT_S: Final = 1200
"""A step takes half a minute on an idle machine, and up to ten times as long on a busy one."""
BUILT: Final = "lib"
NOTED: Final = "extensions"


def ensure(say: Callable[[str], None]) -> None:
    """Compile the modules that are not compiled yet. Raises OperationalFailure with the compiler's
    last lines if no compiler works.
    """
    target = compiled.directory()
    if compiled.compiled_files(target):
        say(f"compiled modules: {', '.join(compiled.MODULES)}")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    say(f"compiling {len(compiled.MODULES)} modules with mypyc (about a minute)")
    refusals: list[str] = []
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as scratch_name,
        contextlib.ExitStack() as fetching,
    ):
        scratch = Path(scratch_name)
        own = _own_compiler()
        wheel = None if own else fetching.enter_context(_fetch_wheel(scratch, say))
        if failure := _step("translate", scratch, {}):
            raise OperationalFailure(f"mypyc could not translate the modules:\n{failure}")
        if own and (failure := _step("build", scratch, {"CC": own, "CFLAGS": FLAGS + _headers(scratch, say)})):
            refusals.append(failure)
            wheel = fetching.enter_context(_fetch_wheel(scratch, say))
        if wheel is not None:
            failure = _wheel_failure(wheel) or _step("build", scratch, _wheel_environment(scratch, say))
            refusals += [failure] if failure else []
        if not compiled.compiled_files(scratch / BUILT):
            raise OperationalFailure("no C compiler could compile the modules:\n" + "\n".join(refusals))
        _replace(target, scratch / BUILT)
    say(f"compiled modules: {', '.join(compiled.MODULES)}")


def _own_compiler() -> str | None:
    """The machine's C compiler."""
    configured = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return next((name for name in (configured, "cc", "gcc", "clang") if shutil.which(name) is not None), None)


@contextlib.contextmanager
def process_group(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that leads a group of its own; options are those of `subprocess.Popen`. If the
    block ends before the process, the whole group is killed: a compiler driver starts others, which
    would write into the scratch folder while it is removed.
    """
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            # not after its end: its number may belong to another process then
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _fetch_wheel(scratch: Path, say: Callable[[str], None]) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """The installation of the wheel, which runs while mypyc translates."""
    say(f"  fetching a C compiler ({WHEEL}); removed afterwards")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
    return process_group([*command, str(scratch / "wheel"), WHEEL], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _wheel_failure(wheel: subprocess.Popen[str]) -> str | None:
    """Wait for pip; returns its output when it failed, else None."""
    try:
        _, reported = wheel.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"pip did not install {WHEEL} within {LIMIT_S} s"
    return f"pip could not install {WHEEL}: {reported.strip()}" if wheel.returncode else None


def _wheel_environment(scratch: Path, say: Callable[[str], None]) -> Mapping[str, str]:
    """The environment variables for a build with the wheel's compiler."""
    script = scratch / "zigcc"
    script.write_text(f'#!/bin/sh\nexec "{scratch}/wheel/ziglang/zig" cc "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    cache = str(scratch / "zig-cache")
    return {
        "CC": str(script),
        "LDSHARED": f"{script} -shared",
        "CFLAGS": FLAGS + _headers(scratch, say),
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }


def _headers(scratch: Path, say: Callable[[str], None]) -> str:
    """Options that name Python's headers if they are not in their usual place; empty if they are,
    or if they cannot be found.
    """
    if (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    package = f"libpython{version}-dev"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return ""
    say(f"  fetching Python's headers (Debian's package {package})")
    subprocess.run(["apt-get", "download", "--quiet", package], cwd=scratch, capture_output=True, check=False)
    for file in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(file), str(scratch / "headers")], capture_output=True, check=False)
    include = scratch / "headers" / "usr" / "include"
    return f" -I{include / f'python{version}'} -I{include}" if include.exists() else ""


def _step(name: str, scratch: Path, environment: Mapping[str, str]) -> str | None:
    """Run `translate` or `build` in a separate process; return its last lines if it failed."""
    tool = environment.get("CC", "mypyc")
    with process_group(
        [sys.executable, "-m", "deploy.module_compiler", name, str(scratch)],
        cwd=compiled.ROOT,
        # the compiler must not import modules that an earlier run has compiled
        env={**os.environ, **environment, compiled.INTERPRETED_VARIABLE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as step:
        try:
            reported, _ = step.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"{tool} did not end within {LIMIT_S} s"
    if step.returncode == 0:
        return None
    lines = reported.splitlines()[-OUTPUT_LINES_SHOWN:]
    return "\n".join([f"{tool}:", *(f"    {line}" for line in lines)])


def _replace(target: Path, built: Path) -> None:
    """Rename the files into place at once, and remove files of earlier sources."""
    for earlier in target.parent.iterdir():
        if earlier != target and earlier.name != built.parent.name:
            shutil.rmtree(earlier, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    built.replace(target)


def translate(scratch: Path) -> None:
    """Translate Python to C, into `scratch`/c, and record what `build` has to compile."""
    from mypyc.build import mypycify

    sources = [str(compiled.source(name).relative_to(compiled.ROOT)) for name in compiled.MODULES]
    options = ["--config-file=pyproject.toml", f"--cache-dir={scratch / 'cache'}", *sources]
    extensions = mypycify(options, opt_level=OPTIMIZATION, debug_level="0", target_dir=str(scratch / "c"))
    (scratch / NOTED).write_bytes(pickle.dumps(extensions))


def build(scratch: Path) -> None:
    """Compile C with the compiler that the environment names, into `scratch`/lib."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    extensions = pickle.loads((scratch / NOTED).read_bytes())  # noqa: S301  our own note of a moment ago
    command = build_ext(Distribution({"name": "antipode-compiled", "ext_modules": extensions}))
    command.build_lib = str(scratch / BUILT)
    command.build_temp = str(scratch / "objects")
    command.force = True
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    sys.path.insert(0, str(compiled.ROOT))
    {"translate": translate, "build": build}[sys.argv[1]](Path(sys.argv[2]))
