"""Sites change roles again and again under transactional producers without restarts: no producer
ends, and each acknowledged transaction is in the log once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.transactional_clients import flat, read_values
from tests.support.clients.transactional_load import PARTITIONS, JavaTransactionalLoad, TransactionalLoad
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic
from tests.support.embedded.site_access import is_protected
from tests.support.eventually import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MOVES = 4
PRODUCERS = 3
BETWEEN_MOVES = 10
"""Transactions that each producer commits before the sites change places again."""


def moved(sites: EmbeddedSites, to: str) -> None:
    """A planned move that loses nothing."""
    done = sites.command("switchover", "a-b", "--to", to, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    account = json.loads(done.stdout)["account"]
    assert (account["is_exact"], account["known_lost_records"]) == (True, 0)


def committed_more(load: TransactionalLoad | JavaTransactionalLoad, wanted: int) -> bool:
    """Whether the producer has committed so many. Waiting for an ended process is useless."""
    return load.committed_count >= wanted or bool(load.fatal)


def all_commit(loads: list[TransactionalLoad | JavaTransactionalLoad]) -> None:
    for load, wanted in [(load, load.committed_count + BETWEEN_MOVES) for load in loads]:
        eventually_sync(partial(committed_more, load, wanted))
    assert {load.name: load.fatal for load in loads if load.fatal} == {}


@contextmanager
def java_load(programs: KafkaPrograms, directory: Path, bootstrap: str) -> Iterator[JavaTransactionalLoad]:
    load = JavaTransactionalLoad(programs, directory, bootstrap, TOPIC, "java")
    try:
        yield load
    finally:
        load.kill()


@pytest.mark.long
async def test_no_transactional_producer_dies_of_planned_moves_there_and_back(
    start_sites: SitesStarter, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    sites = start_sites()
    await create_topic(sites, PARTITIONS)
    both = f"{sites.bootstrap('a')},{sites.bootstrap('b')}"
    with java_load(kafka_programs, tmp_path, both) as java:
        loads = [java, *(TransactionalLoad(both, TOPIC, f"producer-{number}") for number in range(PRODUCERS))]
        for number in range(MOVES):
            all_commit(loads)
            eventually_sync(lambda: is_protected(sites))
            moved(sites, "ba"[number % 2])
        all_commit(loads)
        for load in loads:
            load.finish()
    wanted = sorted(value for load in loads for value in load.committed)
    read = partial(read_values, both, TOPIC, PARTITIONS)
    eventually_sync(lambda: len(flat(read())) >= PARTITIONS * len(wanted))
    for values in read().values():
        assert sorted(values) == wanted
    sites.stop()
