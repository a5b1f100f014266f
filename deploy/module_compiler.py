"""Compiles the modules of `runtime/compiled.py` with mypyc, for the Python of the virtual
environment.

The machine's C compiler does it, or the one in the `ziglang` wheel where there is none; the wheel
(100 MB) lies in a scratch folder that is removed afterwards. Where Python's headers are missing
(Debian's python3-dev), they are unpacked out of Debian's own package, which needs no root. A
machine that can compile nothing runs the same sources interpreted: everything works, and records
are checked more slowly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from runtime import compiled
from runtime.process import OperationalFailure

WHEEL: Final = "ziglang==0.17.1"
FLAGS: Final = "-O3 -fno-semantic-interposition -fvisibility=hidden"
"""Calls between functions of one module are inlined only when no other library may put itself
between them.
"""
OUTPUT_LINES_SHOWN: Final = 15
LIMIT_S: Final = 300


def ensure(say: Callable[[str], None]) -> None:
    """Compile what is not compiled yet. OperationalFailure with the compiler's last lines when no
    compiler can.
    """
    target = compiled.directory()
    if compiled.compiled_files(target):
        say(f"compiled modules: {', '.join(compiled.MODULES)}")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    say(f"compiling {', '.join(compiled.MODULES)} with mypyc (half a minute)")
    refusals: list[str] = []
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as scratch_name:
        scratch = Path(scratch_name)
        for environment in _compilers(scratch, say, refusals):
            failure = _compile(scratch, environment)
            if failure is None:
                _replace(target, scratch / "lib")
                say(f"compiled modules: {', '.join(compiled.MODULES)}")
                return
            refusals.append(failure)
    raise OperationalFailure("no C compiler could compile the modules:\n" + "\n".join(refusals))


def _compilers(scratch: Path, say: Callable[[str], None], refusals: list[str]) -> Iterator[Mapping[str, str]]:
    """What each compiler wants in the environment."""
    flags = FLAGS + _headers(scratch, say)
    own = (sysconfig.get_config_var("CC") or "cc").split()[0]
    for name in dict.fromkeys((own, "cc", "gcc", "clang")):
        if shutil.which(name) is not None:
            yield {"CC": name, "CFLAGS": flags}
            break
    say(f"  fetching a C compiler ({WHEEL}); removed afterwards")
    folder = scratch / "wheel"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), WHEEL]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        refusals.append(f"pip could not install {WHEEL}: {ended.stderr.strip()}")
        return
    script = scratch / "zigcc"
    script.write_text(f'#!/bin/sh\nexec "{folder}/ziglang/zig" cc "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(scratch / "zig-cache"), "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig-cache")}
    yield {"CC": str(script), "LDSHARED": f"{script} -shared", "CFLAGS": flags, **caches}


def _headers(scratch: Path, say: Callable[[str], None]) -> str:
    """Options that name Python's headers where they do not lie in their usual place; empty where
    they do, or cannot be had.
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


def _compile(scratch: Path, environment: Mapping[str, str]) -> str | None:
    """Compile into `scratch`/lib; what the compiler said when it failed."""
    command = [sys.executable, "-m", "deploy.module_compiler", str(scratch)]
    try:
        ended = subprocess.run(
            command,
            cwd=compiled.ROOT,
            env={**os.environ, **environment, compiled.INTERPRETED_VARIABLE: "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"{environment['CC']} did not end within {LIMIT_S} s"
    if ended.returncode == 0 and compiled.compiled_files(scratch / "lib"):
        return None
    lines = (ended.stdout + ended.stderr).splitlines()[-OUTPUT_LINES_SHOWN:]
    return "\n".join([f"{environment['CC']}:", *(f"    {line}" for line in lines)])


def _replace(target: Path, built: Path) -> None:
    """Move the files to their place at once, and take away those of earlier sources."""
    for earlier in target.parent.iterdir():
        if earlier != target and earlier.name != built.parent.name:
            shutil.rmtree(earlier, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    built.replace(target)


def build(scratch: Path) -> None:
    """In a process of its own: mypyc and the C compiler of the environment, into `scratch`/lib."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    sources = [str(compiled.source(name).relative_to(compiled.ROOT)) for name in compiled.MODULES]
    options = ["--config-file=pyproject.toml", f"--cache-dir={scratch / 'cache'}", *sources]
    extensions = mypycify(options, opt_level="3", debug_level="0", target_dir=str(scratch / "c"))
    command = build_ext(Distribution({"name": "antipode-compiled", "ext_modules": extensions}))
    command.build_lib = str(scratch / "lib")
    command.build_temp = str(scratch / "objects")
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    sys.path.insert(0, str(compiled.ROOT))
    build(Path(sys.argv[1]))
