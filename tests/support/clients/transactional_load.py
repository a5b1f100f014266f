"""Transactions without a pause, by librdkafka's producers or by Java's, for as long as a test moves
sites: which values were committed, and whether a producer ended with a fatal error.

Each transaction writes its value to two partitions and stays open for a moment. Transactions that
must be aborted are aborted and repeated with another value, as applications do it.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.transactional_clients import WITHIN_S, transactional_producer
from tests.support.eventually import eventually_sync

JAVA_PROGRAM = Path(__file__).parents[2] / "compatibility" / "programs" / "java" / "SteadyTransactions.java"
PARTITIONS = 2
OPEN_S = 0.05
ENDS_WITHIN_MS = 120_000


class TransactionalLoad:
    """One librdkafka producer in a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, transactional_id: str) -> None:
        self.name = transactional_id
        self.committed: list[bytes] = []
        self.aborted: list[bytes] = []
        self.fatal = ""
        self._bootstrap_servers, self._topic = bootstrap_servers, topic
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=transactional_id, daemon=True)
        self._thread.start()

    @property
    def committed_count(self) -> int:
        """Transactions that were acknowledged so far."""
        return len(self.committed)

    def finish(self) -> None:
        """End after the present transaction."""
        self._is_stopped.set()
        eventually_sync(lambda: not self._thread.is_alive(), ENDS_WITHIN_MS)

    def _run(self) -> None:
        try:
            producer = transactional_producer(
                self._bootstrap_servers, self.name, linger_ms=0, topic_metadata_refresh_interval_ms=1000
            )
            while not self._is_stopped.is_set():
                self._one(producer, b"%s-%d" % (self.name.encode(), len(self.committed) + len(self.aborted)))
        except KafkaException as failure:
            self.fatal = str(failure)

    def _one(self, producer: Any, value: bytes) -> None:
        try:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(self._topic, value, partition=partition)
            producer.poll(0)
            self._is_stopped.wait(OPEN_S)
            until_answered(producer.commit_transaction)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self.aborted.append(value)
            until_answered(producer.abort_transaction)
        else:
            self.committed.append(value)


def until_answered(end: Any) -> None:
    """An end without an answer in time continues when it is called again."""
    while True:
        try:
            end(WITHIN_S)
        except KafkaException as failure:
            if failure.args[0].retriable():
                continue
            raise
        return


class JavaTransactionalLoad:
    """One producer of Apache Kafka's own client in a process of its own; it ends with its
    input.
    """

    def __init__(
        self, programs: KafkaPrograms, directory: Path, bootstrap_servers: str, topic: str, transactional_id: str
    ) -> None:
        self.name = transactional_id
        self._output = directory / f"{transactional_id}.out"
        arguments = (str(JAVA_PROGRAM), bootstrap_servers, topic, transactional_id)
        with self._output.open("wb") as out, (directory / f"{transactional_id}.err").open("wb") as errors:
            self._process = subprocess.Popen(
                programs.command(*arguments), stdin=subprocess.PIPE, stdout=out, stderr=errors
            )

    def _said(self, word: str) -> list[bytes]:
        lines = self._output.read_bytes().splitlines()
        return [line.partition(b" ")[2] for line in lines if line.startswith(word.encode())]

    @property
    def committed(self) -> list[bytes]:
        """Values of transactions that were acknowledged."""
        return self._said("committed ")

    @property
    def aborted(self) -> list[bytes]:
        """Values of transactions that had to be aborted."""
        return self._said("aborted ")

    @property
    def committed_count(self) -> int:
        """Transactions that were acknowledged so far."""
        return len(self.committed)

    @property
    def fatal(self) -> str:
        """Why the producer ended by itself; empty when it did not."""
        return b"; ".join(self._said("fatal ")).decode()

    def finish(self) -> None:
        """End after the present transaction."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ENDS_WITHIN_MS / 1000)

    def kill(self) -> None:
        """kill -9, if it runs."""
        self._process.kill()
        self._process.wait()
