"""Starts either product by its name: a site of three brokers, or one broker alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from bench.measuring.figures import Side
from bench.peers import antipode, apache_kafka
from bench.peers.systems import MeasuredBroker, MeasuredSite


def site_of(
    side: Side, directory: Path, *, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[MeasuredSite]:
    """Three brokers in a fresh directory, ended with the block."""
    start = antipode.replicated_site if side is Side.ANTIPODE else apache_kafka.cluster
    return start(directory, settings=settings)


def broker_of(
    side: Side, directory: Path, *, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[MeasuredBroker]:
    """One broker in a fresh directory, ended with the block."""
    start = antipode.lone_broker if side is Side.ANTIPODE else apache_kafka.lone_broker
    return start(directory, settings=settings)
