"""The targets by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz import batches, bridge, control, frames, handshakes, logins, recovery, requests, tokens, znodes

CORPUS: Final = Path(__file__).parent / "corpus"


class Target(NamedTuple):
    """The function that runs with each input, and the messages that inputs are derived from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]


TARGETS: Final = {
    "batches": Target(batches.run, batches.seeds),
    "bridge": Target(bridge.run, bridge.seeds),
    "control": Target(control.run, control.seeds),
    "frames": Target(frames.run, frames.seeds),
    "handshakes": Target(handshakes.run, handshakes.seeds),
    "logins": Target(logins.run, logins.seeds),
    "recovery": Target(recovery.run, recovery.seeds),
    "requests": Target(requests.run, requests.seeds),
    "tokens": Target(tokens.run, tokens.seeds),
    "znodes": Target(znodes.run, znodes.seeds),
}


def kept_inputs(target: str) -> list[Path]:
    """Inputs that once showed a defect in the target."""
    return sorted((CORPUS / target).glob("*"))
