"""Questions to coordinators."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, admin
from kio.schema.errors import ErrorCode

from cli.shared import kafka_admin
from cli.shared.kafka_admin import ASKED_TIMES_MAX, NotAnswered, answer_of, changed_topic, connect, is_shown
from runtime.process import OperationalFailure

LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def answers(*outcomes: Any) -> Callable[[], Future[Any]]:
    """A question to a coordinator, which gives these answers in turn."""
    left = list(outcomes)

    def ask() -> Future[Any]:
        outcome, future = left.pop(0), Future[Any]()
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future

    return ask


@pytest.mark.parametrize("loading", [KafkaException(LOADING), SimpleNamespace(errors=[LOADING], valid=[])])
def test_a_coordinator_that_is_loading_is_asked_again(loading: Any) -> None:
    whole = SimpleNamespace(errors=[], valid=["board"])
    assert answer_of(answers(loading, loading, whole), "groups") is whole


def test_any_other_refusal_is_reported_immediately() -> None:
    refused = KafkaException(KafkaError(KafkaError.NON_EMPTY_GROUP))
    with pytest.raises(OperationalFailure, match="group g: NON_EMPTY_GROUP"):
        answer_of(answers(refused, "asked again"), "group g")


@pytest.mark.parametrize(
    ("answering", "asked_times"),
    [
        (["given:9092/bootstrap"], 1),
        (["learned:9093/1001", "other:9092/2", "given:9092/1"], 3),
        (["learned:9093/1001"] * ASKED_TIMES_MAX, ASKED_TIMES_MAX),
    ],
    ids=["the given one", "another one first", "never by the given name"],
)
def test_the_given_broker_describes_the_topics(
    monkeypatch: pytest.MonkeyPatch, answering: list[str], asked_times: int
) -> None:
    """The client knows several brokers, and on a busy machine some of them do not know a new topic
    yet.
    """
    left = list(answering)

    def client(_: Any) -> Any:
        name = left.pop(0)
        return SimpleNamespace(list_topics=lambda **_: SimpleNamespace(orig_broker_name=name, topics={name: "topic"}))

    monkeypatch.setattr(admin, "AdminClient", client)
    assert connect("other-site:9092,given:9092").topics == {answering[asked_times - 1]: "topic"}
    assert len(left) == len(answering) - asked_times


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ({"t": SimpleNamespace(error=None, partitions={0: 0, 1: 1})}, "Topic t is there with 2 partitions"),
        ({}, "Topic t is not there yet, but the controller may still create it"),
    ],
)
@pytest.mark.parametrize("code", [KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT])
def test_new_partitions_without_an_answer_are_looked_for(topics: dict[str, Any], said: str, code: int) -> None:
    client = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=topics))
    late = answers(KafkaException(KafkaError(code)))()
    with pytest.raises(NotAnswered, match=said) as raised:
        changed_topic(late, "topic t cannot be created", client=client, topic="t")
    assert "antipode topics describe t" in str(raised.value)


def test_new_partitions_that_are_refused_are_not_looked_for() -> None:
    refused = answers(KafkaException(KafkaError(KafkaError.INVALID_PARTITIONS)))()
    with pytest.raises(OperationalFailure, match="cannot be created") as raised:
        changed_topic(refused, "topic t cannot be created", client=None, topic="t")
    assert not isinstance(raised.value, NotAnswered)


def test_a_topic_counts_as_created_when_a_broker_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_admin, "LOADING_PAUSE_S", 0)
    unknown = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    looks: list[Any] = [{}, {"t": unknown}, KafkaException(LOADING), {"t": SimpleNamespace(error=None)}]

    def list_topics(**_: Any) -> Any:
        look = looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return SimpleNamespace(topics=look)

    client = SimpleNamespace(list_topics=list_topics)
    assert is_shown(client, "t")
    assert not looks
    monkeypatch.setattr(kafka_admin, "TOPIC_CHANGE_TIMEOUT_S", 0)
    looks.append({})
    assert not is_shown(client, "t")


def test_a_connected_broker_that_lists_many_partitions_gets_more_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[float] = []

    def list_topics(*, timeout: float) -> Any:
        asked.append(timeout)
        if len(asked) < 3:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(orig_broker_name="given:9092/1", topics={"t": "topic"})

    monkeypatch.setattr(admin, "AdminClient", lambda _: SimpleNamespace(list_topics=list_topics, poll=lambda _: 0))
    assert connect("given:9092").topics == {"t": "topic"}
    assert asked == [kafka_admin.LOGIN_TIMEOUT_S, kafka_admin.TIMEOUT_S, kafka_admin.TOPIC_LIST_TIMEOUT_S]
    assert "no list of topics within 10 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reported", "message", "attempts"),
    [
        ([], "no broker at given:9092 answers", [kafka_admin.LOGIN_TIMEOUT_S, kafka_admin.TIMEOUT_S]),
        (
            [KafkaError(KafkaError._TRANSPORT, "Connection refused")],
            "no broker at given:9092 answers",
            [kafka_admin.LOGIN_TIMEOUT_S, kafka_admin.TIMEOUT_S],
        ),
        (
            [
                KafkaError(KafkaError._AUTHENTICATION, "Invalid username or password"),
                KafkaError(KafkaError._ALL_BROKERS_DOWN),
            ],
            r"no login at given:9092 \(_AUTHENTICATION: Invalid username or password\)",
            [kafka_admin.LOGIN_TIMEOUT_S],
        ),
        (
            [KafkaError(KafkaError._TRANSPORT, "error:0A000086:SSL routines::certificate verify failed")],
            r"no login at given:9092 \(_TRANSPORT: .*certificate verify failed\)",
            [kafka_admin.LOGIN_TIMEOUT_S],
        ),
    ],
    ids=["silent", "refused connection", "refused login", "untrusted certificate"],
)
def test_a_refused_login_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, reported: list[KafkaError], message: str, attempts: list[float]
) -> None:
    """librdkafka itself reports no more than that no broker could be reached."""
    asked: list[float] = []

    def list_topics(*, timeout: float) -> Any:
        asked.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def client(given: Any) -> Any:
        return SimpleNamespace(list_topics=list_topics, poll=lambda _: [given["error_cb"](error) for error in reported])

    monkeypatch.setattr(admin, "AdminClient", client)
    with pytest.raises(OperationalFailure, match=message):
        connect("given:9092")
    assert asked == attempts


@pytest.mark.parametrize(
    ("code", "text", "message"),
    [
        (ErrorCode.cluster_authorization_failed, None, "x: CLUSTER_AUTHORIZATION_FAILED (the log of that broker names"),
        (ErrorCode.group_authorization_failed, "no", "x: GROUP_AUTHORIZATION_FAILED: no (the log of that broker names"),
        (ErrorCode.invalid_request, None, "x: INVALID_REQUEST: no reason given"),
    ],
)
def test_a_refusal_for_lack_of_a_right_names_where_the_right_is_named(
    code: ErrorCode, text: str | None, message: str
) -> None:
    with pytest.raises(OperationalFailure) as refused:
        kafka_admin.raise_refusal(SimpleNamespace(error_code=code, error_message=text), "x")
    assert str(refused.value).startswith(message)
