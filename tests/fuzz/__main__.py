"""`python -m tests.fuzz --seconds 60 [--target requests]`: coverage-guided fuzzing of each target
in a process of its own.

A defect ends its target's run; atheris leaves the input below `out/fuzz/<target>/`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from hashlib import sha1
from pathlib import Path

OUT = Path("out/fuzz")
INSTRUMENTED = ["bridge", "broker", "dr", "wire", "runtime"]
MEMORY_MB_MAX = 1024


def main() -> int:
    """Fuzz one target in this process, or all in turn; 1 when a defect was found."""
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--target", default="")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        _fuzz(options.target, options.seconds)
    from tests.fuzz.targets import TARGETS

    names = [options.target] if options.target else sorted(TARGETS)
    failed = [name for name in names if _run_apart(name, options.seconds)]
    print("defects in: " + ", ".join(failed) if failed else "no defects")
    return 1 if failed else 0


def _run_apart(name: str, seconds: int) -> int:
    command = [sys.executable, "-m", "tests.fuzz", "--here", "--target", name, "--seconds", str(seconds)]
    return subprocess.run(command, check=False).returncode


def _fuzz(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS, kept_inputs
    target = TARGETS[name]
    corpus = OUT / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in [*target.seeds(), *(path.read_bytes() for path in kept_inputs(name))]:
        (corpus / sha1(data).hexdigest()).write_bytes(data)
    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_MB_MAX}", f"-artifact_prefix={OUT / name}/"]
    atheris.Setup([sys.argv[0], *limits, "-max_len=65536", "-print_final_stats=1", str(corpus)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
