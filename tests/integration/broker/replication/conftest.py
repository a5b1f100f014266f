"""Fixtures: sites of three brokers that differ in their patience with paused brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, ReplicatedSite


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect)


@pytest.fixture
def calm_site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    """No broker counts as dead that was only paused for a moment."""
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, CALM)


@pytest.fixture
def patient_site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    """A follower that is paused stays in sync."""
    patience = {"replica.lag.time.max.ms": "60000", "zookeeper.session.timeout.ms": "60000"}
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, patience)
