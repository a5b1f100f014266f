"""The table of a transaction coordinator's answers: each state of a transactional id, each request
of a producer, each version.

`TransactionTable` asks a running cluster, ours or Apache Kafka, over its protocol. It brings a
transactional id of its own into the state of a row, sends the request of the column, and notes the
answer with the state that follows. The cluster has two brokers: every coordinator and the topic
`own` are at the first one. The topic `held` is at the second, which has been stopped, so the
markers for `held` never arrive and a transaction that has written there stays in its prepared
state.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from wire.client.requests.transaction_descriptions import parse_description
from wire.protocol.schemas import api_name
from wire.protocol.streams.frames import response_body_position

OWN: Final = "own"
HELD: Final = "held"
FIND_COORDINATOR, CREATE_TOPICS, INIT, ADD, ADD_OFFSETS, END, COMMIT_OFFSETS, DESCRIBE = 10, 19, 22, 24, 25, 26, 28, 65
API_VERSIONS: Final = 18
TRANSACTION_APIS: Final = INIT, ADD, ADD_OFFSETS, END, 27, COMMIT_OFFSETS, DESCRIBE, 66
FEATURE: Final = "transaction.version"
OLDER, NEWER = 4, 5
"""EndTxn versions of the protocol of one epoch for all transactions, and of an epoch for each
(KIP-890).
"""
ANSWERED_AT_ONCE: Final = ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress
WORKERS: Final = 8
GROUP: Final = "g"


@dataclass(frozen=True, slots=True)
class Producer:
    """The client that sends the request."""

    name: str
    producer_id: int
    epoch: int

    def other(self, *, ids: int = 0, epochs: int = 0) -> Producer:
        """A producer whose id or epoch differs by so much."""
        return Producer(self.name, self.producer_id + ids, self.epoch + epochs)


@dataclass
class Asker:
    """Requests over one connection, and their responses."""

    client: RawClient
    is_held: bool = False

    def init(self, name: str, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000) -> Any:
        """InitProducerId."""
        asked = {
            "transactional_id": name,
            "transaction_timeout": dt.timedelta(milliseconds=timeout_ms),
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        return self._until_coordinated(lambda: self.client.call(INIT, 5, asked))

    def add(self, producer: Producer, topic: str, partition: int = 0, *, version: int = 3, verify: bool = False) -> str:
        """AddPartitionsToTxn; the name of the error."""
        topics = [{"name": topic, "partitions": (partition,)}]
        named = {
            "transactional_id": producer.name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "topics": topics,
        }
        if version < 4:
            answer = self.client.call(ADD, version, {f"v3_and_below_{key}": value for key, value in named.items()})
            (topic_result,) = answer.results_by_topic_v3_and_below
        else:
            answer = self.client.call(ADD, version, {"transactions": [{**named, "verify_only": verify}]})
            (topic_result,) = answer.results_by_transaction[0].topic_results
        return ErrorCode(topic_result.results_by_partition[0].partition_error_code).name

    def end(self, producer: Producer, *, is_commit: bool, version: int) -> Any:
        """EndTxn."""
        asked = {
            "transactional_id": producer.name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": is_commit,
        }
        return self.client.call(END, version, asked)

    def add_offsets(self, producer: Producer, *, version: int) -> str:
        """AddOffsetsToTxn; the name of the error."""
        asked = {
            "transactional_id": producer.name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "group_id": GROUP,
        }
        answer = self._until_coordinated(lambda: self.client.call(ADD_OFFSETS, version, asked))
        return ErrorCode(answer.error_code).name

    def commit_offsets(self, producer: Producer, *, version: int) -> str:
        """TxnOffsetCommit; the name of the error."""
        offset = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": None}
        asked = {
            "transactional_id": producer.name,
            "group_id": GROUP,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": OWN, "partitions": [offset]}],
        }
        answer = self.client.call(COMMIT_OFFSETS, version, asked)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    def state(self, name: str) -> tuple[str, int, int]:
        """State, producer id and epoch of a transactional id."""
        self.client.send_call(DESCRIBE, 0, {"transactional_ids": (name,)})
        frame = self.client.read_frame()
        found = parse_description(frame, response_body_position(frame, DESCRIBE, 0))
        if found.error_code:
            return "unknown", -1, -1
        return found.state, found.producer_id, found.producer_epoch

    def settled_state(self, name: str) -> tuple[str, int, int]:
        """The same as `state`, after all possible markers are written."""
        if not self.is_held:
            eventually_sync(lambda: not self.state(name)[0].startswith("Prepare"))
        return self.state(name)

    def _until_coordinated(self, ask: Callable[[], Any]) -> Any:
        answers: list[Any] = []

        def has_answer() -> bool:
            answers[:] = [ask()]
            return ErrorCode(answers[0].error_code) not in ANSWERED_AT_ONCE

        eventually_sync(has_answer)
        return answers[0]


# --- rows

State = Callable[[Asker, str], Producer]


def _empty(asker: Asker, name: str) -> Producer:
    """A transactional id in its second epoch, so that a former one exists."""
    asker.init(name)
    answer = asker.init(name)
    assert not answer.error_code, answer
    return Producer(name, answer.producer_id, answer.producer_epoch)


def _never_seen(_: Asker, name: str) -> Producer:
    return Producer(name, 4711, 1)


def _ongoing(protocol: int, topic: str = OWN) -> State:
    def begin(asker: Asker, name: str) -> Producer:
        producer = _empty(asker, name)
        asker.is_held = topic == HELD
        assert asker.add(producer, topic, version=3 if protocol == OLDER else 5) == "none"
        return producer

    return begin


def _ended(protocol: int, *, is_commit: bool, is_held: bool) -> State:
    """The producer continues under the epoch that EndTxn has assigned."""

    def end(asker: Asker, name: str) -> Producer:
        producer = _ongoing(protocol, HELD if is_held else OWN)(asker, name)
        answer = asker.end(producer, is_commit=is_commit, version=protocol)
        assert not answer.error_code, answer
        asker.settled_state(name)
        return producer if protocol == OLDER else Producer(name, answer.producer_id, answer.producer_epoch)

    return end


def _taken_over(protocol: int, *, is_held: bool) -> State:
    """Another producer has asked for the transactional id: the open transaction is aborted. The
    first producer asks on.
    """

    def take_over(asker: Asker, name: str) -> Producer:
        producer = _ongoing(protocol, HELD if is_held else OWN)(asker, name)
        answer = asker.init(name)
        assert ErrorCode(answer.error_code) is ErrorCode.concurrent_transactions or not is_held
        asker.settled_state(name)
        return producer

    return take_over


STATES: Final[dict[str, State]] = {
    "unknown": _never_seen,
    "Empty": _empty,
    "Ongoing": _ongoing(OLDER),
    "Ongoing, newer protocol": _ongoing(NEWER),
    **{
        f"{prefix}{outcome}{suffix}": _ended(protocol, is_commit=outcome == "Commit", is_held=prefix == "Prepare")
        for (suffix, protocol), prefix, outcome in itertools.product(
            (("", OLDER), (", newer protocol", NEWER)), ("Prepare", "Complete"), ("Commit", "Abort")
        )
    },
    "PrepareAbort by another producer": _taken_over(OLDER, is_held=True),
    "PrepareAbort by another producer, newer protocol": _taken_over(NEWER, is_held=True),
}

# --- columns

Request = Callable[[Asker, Producer], str]


def _initialized(asker: Asker, producer: Producer, *, is_named: bool) -> str:
    named = (producer.producer_id, producer.epoch) if is_named else (-1, -1)
    return _producer_text(asker.init(producer.name, *named), producer)


def _end_text(asker: Asker, producer: Producer, *, is_commit: bool, version: int) -> str:
    answer = asker.end(producer, is_commit=is_commit, version=version)
    return ErrorCode(answer.error_code).name if version < NEWER else _producer_text(answer, producer)


def _producer_text(answer: Any, producer: Producer) -> str:
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    return f"none, {_identity_text(producer, answer.producer_id, answer.producer_epoch)}"


def _identity_text(producer: Producer, producer_id: int, epoch: int) -> str:
    if producer_id != producer.producer_id:
        return f"another id, epoch {epoch}"
    return f"epoch {epoch}"


def _whose(ask: Request, *, ids: int = 0, epochs: int = 0) -> Request:
    return lambda asker, producer: ask(asker, producer.other(ids=ids, epochs=epochs))


def _requests() -> Iterator[tuple[str, Request]]:
    yield "InitProducerId", lambda asker, producer: _initialized(asker, producer, is_named=False)
    yield (
        "InitProducerId without an epoch",
        lambda asker, producer: _initialized(asker, Producer(producer.name, producer.producer_id, -1), is_named=True),
    )
    asked: dict[str, Request] = {
        "InitProducerId of the producer": lambda asker, producer: _initialized(asker, producer, is_named=True),
        "AddPartitionsToTxn v3": lambda asker, producer: asker.add(producer, OWN, 1),
        "AddPartitionsToTxn v5": lambda asker, producer: asker.add(producer, OWN, 1, version=5),
        "AddPartitionsToTxn v4 verify, taking part": lambda asker, producer: asker.add(
            producer, HELD if asker.is_held else OWN, version=4, verify=True
        ),
        "AddPartitionsToTxn v5 verify, taking part": lambda asker, producer: asker.add(
            producer, HELD if asker.is_held else OWN, version=5, verify=True
        ),
        "AddOffsetsToTxn v4": lambda asker, producer: asker.add_offsets(producer, version=4),
        "TxnOffsetCommit v3": lambda asker, producer: asker.commit_offsets(producer, version=3),
        "TxnOffsetCommit v5": lambda asker, producer: asker.commit_offsets(producer, version=5),
    }
    for (word, is_commit), version in itertools.product((("commit", True), ("abort", False)), (OLDER, NEWER)):
        asked[f"EndTxn v{version} {word}"] = partial(_end_text, is_commit=is_commit, version=version)
    for name, ask in asked.items():
        yield name, ask
        yield f"{name}, former epoch", _whose(ask, epochs=-1)
        yield f"{name}, later epoch", _whose(ask, epochs=1)
        if "verify" not in name:
            yield f"{name}, another id", _whose(ask, ids=1_000_000)


REQUESTS: Final = dict(_requests())


class TransactionTable:
    """Fills the table from one cluster; `port` is the first broker's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._numbers = itertools.count()

    def names(self, prefix: str) -> str:
        """A transactional id that was never used."""
        return f"{prefix}-{next(self._numbers)}"

    def rows(self, state: str) -> list[str]:
        """The answers in one state, a line for each request."""
        with ThreadPoolExecutor(WORKERS) as workers:
            answers = workers.map(lambda request: self._answer(state, request), REQUESTS)
            return [f"{request}: {answer}" for request, answer in zip(REQUESTS, answers, strict=True)]

    def _answer(self, state: str, request: str) -> str:
        with RawClient(self._port) as client:
            asker = Asker(client)
            name = self.names("id")
            producer = STATES[state](asker, name)
            answer = REQUESTS[request](asker, producer)
            after, producer_id, epoch = asker.settled_state(name)
            return (
                f"{answer}; {after} {'' if producer_id < 0 else _identity_text(producer, producer_id, epoch)}".strip()
            )

    def versions(self) -> list[str]:
        """The answer of ApiVersions about the requests of transactions, and the level of
        `transaction.version`.
        """
        with RawClient(self._port) as client:
            answer = client.call(API_VERSIONS, 4, {"client_software_name": "table", "client_software_version": "1"})
        apis = {found.api_key: f"{found.min_version} to {found.max_version}" for found in answer.api_keys}
        lines = [f"{api_name(key)}: {apis[key]}" for key in TRANSACTION_APIS]
        (supported,) = (found for found in answer.supported_features if found.name == FEATURE)
        (finalized,) = (found for found in answer.finalized_features if found.name == FEATURE)
        levels = f"supported up to {supported.max_version}, finalized {finalized.max_version_level}"
        return [*lines, f"{FEATURE}: {levels}"]

    def text(self) -> str:
        """The whole table."""
        tables = {"ApiVersions": self.versions(), **{state: self.rows(state) for state in STATES}}
        return "\n".join("\n".join((f"## {state}", *rows, "")) for state, rows in tables.items())


# --- the cluster


def make_coordinators(port: int) -> None:
    """Have the first broker, alone, make the topics of all coordinators."""
    with RawClient(port) as client:
        for key_type, key in ((0, GROUP), (1, "any")):
            eventually_sync(partial(_has_coordinator, client, key_type, key))


def _has_coordinator(client: RawClient, key_type: int, key: str) -> bool:
    (found,) = client.call(FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": (key,)}).coordinators
    return ErrorCode(found.error_code) is ErrorCode.none


def make_topics(port: int, *, own: int, held: int) -> None:
    """Two partitions of `own` at one broker, two of `held` at the other, which must be alive."""
    topics = tuple(
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": tuple({"partition_index": index, "broker_ids": (node_id,)} for index in range(2)),
            "configs": (),
        }
        for name, node_id in ((OWN, own), (HELD, held))
    )
    asked = {"topics": topics, "timeout": dt.timedelta(seconds=10), "validate_only": False}
    done = ErrorCode.none, ErrorCode.topic_already_exists
    with RawClient(port) as client:
        eventually_sync(lambda: all(topic.error_code in done for topic in client.call(CREATE_TOPICS, 7, asked).topics))
