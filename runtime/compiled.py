"""Names the modules that run as machine code. `make setup` compiles them with mypyc from the same
Python that runs where nothing is compiled.

The folder of the compiled library is named by the digest of their sources. After a change of a
source, Python runs the sources until the next `make setup`, and never outdated compiled code.
`ANTIPODE_INTERPRETED=1` leaves the library alone, for tests that run both ways and for
debuggers.

Callers: `wire/__init__.py`, before any of the modules is imported; `deploy/module_compiler.py`,
which makes the library.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

MODULES: Final = (
    "wire.protocol.byte_reader",
    "wire.protocol.byte_writer",
    "wire.protocol.messages.fetch_codec",
    "wire.client.requests.fetch_requests",
    "wire.protocol.ids",
    "wire.protocol.streams.frames",
    "wire.protocol.messages.leader_hints",
    "wire.protocol.messages.mirror_append_codec",
    "wire.protocol.messages.produce_codec",
    "wire.batches.checksums",
    "wire.batches.record_batch",
    "wire.batches.varints",
    "wire.batches.record_walks",
    "wire.batches.records",
    "wire.batches.record_columns",
    "broker.handlers.records.fetch",
    "broker.handlers.records.fetch_reading",
    "broker.handlers.records.produce",
    "broker.handlers.records.produce_responses",
    "broker.latencies",
    "broker.log.core.batch_checks",
    "broker.log.core.leader_epochs",
    "broker.log.core.producer_state",
    "broker.log.core.retention",
    "broker.log.directories.removal",
    "broker.log.intake",
    "broker.log.log_state",
    "broker.log.log_writing",
    "broker.log.partition_log",
    "broker.log.source_seen",
    "broker.log.segments.descriptors",
    "broker.log.segments.indexed_batches",
    "broker.log.segments.segment",
    "broker.log.segments.segment_list",
    "broker.log.segments.sparse_index",
    "broker.network.channels",
    "broker.network.connections",
    "broker.network.exchange",
    "broker.network.frame_receiver",
    "broker.network.request_memory",
    "broker.network.response_sender",
    "broker.network.response_slots",
    "broker.network.tls_channel",
    "broker.replication.core.partition",
    "broker.replication.core.partition_state",
    "broker.replication.core.verification_guards",
    "broker.replication.hosted_partition",
    "broker.replication.hosted_partitions",
    "broker.replication.mirror_append",
    "broker.replication.replicas",
    "wire.protocol.streams.receive_mark",
    "broker.replication.purgatory",
    "broker.replication.replica_figures",
    "broker.replication.role_changes",
    "broker.replication.role_lines",
    "broker.replication.tracked_sessions",
    "wire.rules.topic_names",
    "wire.control.partition_columns",
)
"""Modules that are compiled, by a profile of what brokers, mirrors and clients spend their time on;
which rules they keep: docs/decisions/0037.
"""
GROUP: Final = "antipode"
"""The name of the group of modules that mypyc puts in one library."""
INTERPRETED_VARIABLE: Final = "ANTIPODE_INTERPRETED"
PARTS_VARIABLE: Final = "ANTIPODE_PARTS"
_LIBRARY: Final = f"{GROUP}__mypyc"
ROOT: Final = Path(__file__).resolve().parent.parent
_FINGERPRINT_LENGTH: Final = 16


class CompiledFinder:
    """Finds the compiled file of a module before Python looks for its source; a finder of
    `sys.meta_path`.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the signature of finders
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """The compiled file of the module; None for every module that is not compiled."""
        file = self.files.get(name)
        if file is None:
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, str(file))
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def install() -> None:
    """Make Python import the compiled modules. Does nothing without compiled modules, or at a
    second call.
    """
    if os.environ.get(INTERPRETED_VARIABLE) == "1" or any(isinstance(one, CompiledFinder) for one in sys.meta_path):
        return
    files = compiled_files(directory())
    if files:
        sys.meta_path.insert(0, CompiledFinder(files))


def directory() -> Path:
    """The folder for the compiled files of the current sources; `make setup` creates it."""
    named = os.environ.get(PARTS_VARIABLE)
    return (Path(named) if named else ROOT / ".parts") / "compiled" / _fingerprint()


def library_file(folder: Path) -> Path:
    """The place in `folder` of the library with all compiled modules."""
    return folder / f"{_LIBRARY}{sysconfig.get_config_var('EXT_SUFFIX')}"


def compiled_files(folder: Path) -> dict[str, Path]:
    """The file in `folder` for each module: the library, which starts each of them by its name, and
    which the modules import themselves. Empty if it is missing.
    """
    file = library_file(folder)
    return dict.fromkeys((_LIBRARY, *MODULES), file) if file.exists() else {}


def is_compiled(name: str) -> bool:
    """True if the imported module of this name runs as machine code."""
    module = sys.modules.get(name)
    return module is not None and isinstance(module.__loader__, importlib.machinery.ExtensionFileLoader)


def source(name: str) -> Path:
    """The source file of a module."""
    return ROOT.joinpath(*name.split(".")).with_suffix(".py")


def describe() -> str:
    """A line for the start log and `antipode --version`: which modules are compiled, or why none
    is.
    """
    if os.environ.get(INTERPRETED_VARIABLE) == "1":
        return f"none: {INTERPRETED_VARIABLE}=1 is set"
    files = compiled_files(directory())
    return ", ".join(MODULES) if files else "none: run `make setup` to compile them"


def _fingerprint() -> str:
    digest = hashlib.sha256((sysconfig.get_config_var("SOABI") or sys.version).encode())
    for name in MODULES:
        file = source(name)
        digest.update(file.read_bytes() if file.exists() else b"")
    return digest.hexdigest()[:_FINGERPRINT_LENGTH]
