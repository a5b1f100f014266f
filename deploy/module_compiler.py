"""Compiles the modules of `runtime/compiled.py` with mypyc, for the Python of the virtual
environment.

The machine's C compiler is used, or the one in the `ziglang` wheel if there is none; the wheel (100
MB) is fetched while mypyc translates, into a scratch folder that is removed afterwards. If Python's
headers (Debian's python3-dev) are missing, they are unpacked out of Debian's own package, which
needs no root. On a machine without a working compiler, Python interprets the same sources:
everything works, and the check of records is slower.
"""

from __future__ import annotations

import concurrent.futures
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
OPTIMIZATION: Final = "1"
"""Level 2 takes twice the time to compile, and makes only loops over numbers faster."""
LOOPS: Final = ("wire.batches.record_walks", "wire.batches.varints")
"""Modules with such loops: they are compiled with level 2."""
FLAGS: Final = "-finline-small-functions -fno-semantic-interposition -fvisibility=hidden"
"""Calls between functions of one file are inlined only if no other library may override them."""
OUTPUT_LINES_SHOWN: Final = 15
LIMIT_S: Final = 1200
"""A step takes half a minute on an idle machine, and up to ten times as long on a busy one."""
BUILT: Final = "lib"
NOTED: Final = "library"
LOOPS_FILE: Final = "loops.c"
_EXTRA_HEADERS: Final = ("bytearray_extra_ops", "bytes_extra_ops", "byteswriter_extra_ops")
_SETTINGS: Final = """\
[mypy]
python_version = 3.11
explicit_package_bases = True

[mypy-cryptography.*,google.*,grpc.*,hypothesis.*,markdown_it.*,numpy.*,prometheus_client.*,pydantic.*,pydantic_core.*,\
rich.*,structlog.*,tenacity.*,typing_inspection.*,yaml.*]
follow_imports = skip
ignore_missing_imports = True
"""
"""mypy need not read the packages that no compiled module takes a type from: the same C comes out,
in half the time. A package that is missing here costs time; one too many makes its types Any.
"""


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

    settings = scratch / "mypy.ini"
    settings.write_text(_SETTINGS, encoding="ascii")
    sources = [str(compiled.source(name).relative_to(compiled.ROOT)) for name in compiled.MODULES]
    options = [f"--config-file={settings}", f"--cache-dir={scratch / 'cache'}", *sources]
    library, *starters = mypycify(
        options,
        opt_level=OPTIMIZATION,
        debug_level="0",
        target_dir=str(scratch / "c"),
        multi_file=True,
        include_runtime_files=True,
        group_name=compiled.GROUP,
    )
    loops = [file for file in library.sources if _is_of(LOOPS, file)]
    others = [file for file in library.sources if file not in loops]
    first, *more = equal_parts(others, os.cpu_count() or 1)
    library.sources = [
        str(_joined(scratch / "c" / LOOPS_FILE, loops)),
        str(_joined(scratch / "c" / "part0.c", [*first, *(starter.sources[0] for starter in starters)])),
        *(str(_joined(scratch / "c" / f"part{i}.c", part)) for i, part in enumerate(more, 1)),
    ]
    (scratch / NOTED).write_bytes(pickle.dumps(library))


def _is_of(modules: Sequence[str], file: str) -> bool:
    """True if mypyc made the file of one of the modules."""
    return Path(file).name in {f"__native_{name.replace('.', '___')}.c" for name in modules}


def equal_parts(files: Sequence[str], count: int) -> list[list[str]]:
    """The files in their order, in at most `count` parts of about the same number of bytes. Files
    beside each other call each other, and the compiler inlines within a part.
    """
    sizes = [Path(file).stat().st_size for file in files]
    share = sum(sizes) / count
    parts: dict[int, list[str]] = {}
    before = 0
    for file, size in zip(files, sizes, strict=True):
        parts.setdefault(int((before + size / 2) / share), []).append(file)
        before += size
    return list(parts.values())


def _joined(joined: Path, files: Sequence[str]) -> Path:
    """A C file that includes all the files."""
    # mypyc does not declare these in the file of each module that calls them
    lines = [f"#include <{name}.h>\n" for name in ("CPy", *_EXTRA_HEADERS)]
    for i, file in enumerate(files):
        # each file that starts a module defines a function of this name, which nothing calls
        lines.append(f'#define PyInit___init__ unused{i}\n#include "{file}"\n#undef PyInit___init__\n')
    joined.write_text("".join(lines), encoding="utf-8")
    return joined


def build(scratch: Path) -> None:
    """Compile C with the compiler that the environment names, as many files at once as the machine
    has cores, into `scratch`/lib.
    """
    from distutils import ccompiler
    from distutils import sysconfig as compiler_settings

    import setuptools  # noqa: F401  it brings distutils along where Python has none

    library = pickle.loads((scratch / NOTED).read_bytes())  # noqa: S301  our own note of a moment ago
    compiler: Any = ccompiler.new_compiler()
    compiler_settings.customize_compiler(compiler)
    include = [*library.include_dirs, sysconfig.get_path("include")]

    def compile_one(source: str) -> str:
        objects: list[str] = compiler.compile(
            [source],
            output_dir=str(scratch / "objects"),
            include_dirs=include,
            extra_postargs=[*library.extra_compile_args, *(["-O2"] if Path(source).name == LOOPS_FILE else [])],
        )
        return objects[0]

    with concurrent.futures.ThreadPoolExecutor(len(library.sources)) as pool:
        objects = list(pool.map(compile_one, library.sources))
    compiler.link_shared_object(objects, str(compiled.library_file(scratch / BUILT)))


if __name__ == "__main__":
    sys.path.insert(0, str(compiled.ROOT))
    {"translate": translate, "build": build}[sys.argv[1]](Path(sys.argv[2]))
