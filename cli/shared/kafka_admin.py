"""The admin clients of the commands: librdkafka's and Antipode's own. Each failure is one
message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from cli.shared.command_config import kafka_options
from cli.shared.failures import usage_error
from cli.shared.output import report_progress
from runtime.addresses import HostPort, parse_host_ports
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException
    from kio.schema.errors import ErrorCode

    from wire.client.raw_client import KafkaClient

TIMEOUT_S = 10.0
LOGIN_TIMEOUT_S = 1.0
"""The time (s) after which a command looks whether its login was refused."""
TOPIC_CHANGE_TIMEOUT_S = 60.0
"""The time (s) that the site may take for new partitions: some thousand take seconds, because the
controller stores each of them, and each broker makes a log for it.
"""
TOPIC_LIST_TIMEOUT_S = 60.0
"""The time (s) that a connected broker may take for the list of all partitions, after TIMEOUT_S."""
ANSWER_MARGIN_S = 5.0
"""The time (s) after which the broker's own answer to a timeout is not awaited any longer."""
RETRY_BUDGET_MS = 5_000
LOADING_PAUSE_S = 0.1
ASKED_TIMES_MAX = 5
"""The maximum number of requests to a given broker; a broker that advertises another name cannot be
recognised.
"""

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        help="Brokers to ask first, host:port[,host:port...]; brokers of either site of a link are accepted.",
        envvar="ANTIPODE_BOOTSTRAP_SERVER",
    ),
]
SourceBootstrapServer = Annotated[
    str,
    typer.Option(
        "--source-bootstrap-server",
        help="Brokers of the source: needed where another link carries the same topics back under the same names.",
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Result = TypeVar("Result")


class Cluster(NamedTuple):
    """A cluster that answered. Keep it until the futures of its client are done.

    `topics` are those that the given broker reports: the client discovers the brokers of all sites
    and may use any of them, and a topic that is new, or that no link carries, is not known at every
    site.
    """

    client: Any
    topics: Mapping[str, Any]


def connect(bootstrap_server: str) -> Cluster:
    """Ask the brokers once, so that a wrong address fails at once.

    Raises OperationalFailure if no broker answers, and a usage error if the address is invalid.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        given = {str(address) for address in parse_host_ports(bootstrap_server)}
    except ValueError as error:
        raise usage_error(f"--bootstrap-server {bootstrap_server!r} is not usable: {error}") from error
    for _ in range(ASKED_TIMES_MAX):
        reported: list[KafkaError] = []
        options: dict[str, Any] = {**librdkafka_settings(bootstrap_server), "error_cb": reported.append}
        client = AdminClient(options)
        try:
            metadata = _metadata(client, reported)
        except KafkaException as error:
            raise OperationalFailure(_unreached(bootstrap_server, error, reported)) from error
        if str(metadata.orig_broker_name).rpartition("/")[0] in given:
            break  # else another broker that the client knows, perhaps of the other site, answered first
    return Cluster(client, metadata.topics)


def _metadata(client: Any, reported: Sequence[KafkaError]) -> Any:
    """All topics. A broker that takes requests may need longer for many thousands of partitions.

    `reported` are the errors that the client has reported meanwhile. A client whose login is
    refused tries it again several times a second, and the broker counts each failed login.
    """
    from confluent_kafka import KafkaError, KafkaException

    try:
        return client.list_topics(timeout=LOGIN_TIMEOUT_S)
    except KafkaException:
        client.poll(0)
        if _refused_login(reported) is not None:
            raise
    try:
        return client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        # the client could not even connect: _TRANSPORT
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
    report_progress(f"no list of topics within {TIMEOUT_S:g} s: waiting up to {TOPIC_LIST_TIMEOUT_S:g} s more")
    return client.list_topics(timeout=TOPIC_LIST_TIMEOUT_S)


def _refused_login(reported: Sequence[KafkaError]) -> KafkaError | None:
    """The last error of a login or of a TLS handshake among those that a client reported."""
    from confluent_kafka import KafkaError

    refusals = (
        error
        for error in reversed(reported)
        # librdkafka reports a certificate that it does not trust as a broken connection
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or "SSL routines" in error.str()
    )
    return next(refusals, None)


def _unreached(bootstrap_server: str, error: KafkaException, reported: Sequence[KafkaError]) -> str:
    """The message of a client that no broker has answered."""
    refusal = _refused_login(reported)
    if refusal is not None:
        return (
            f"no login at {bootstrap_server} ({refusal.name()}: {refusal.str()}): do security.protocol, sasl.* and "
            "ssl.* of --command-config fit this listener?"
        )
    return (
        f"no broker at {bootstrap_server} answers ({reason(error)}): is it running, is the address right, and does "
        "security.protocol of --command-config fit this listener?"
    )


def librdkafka_settings(bootstrap_server: str) -> dict[str, Any]:
    """The settings of a librdkafka client, with the options of `--command-config`. Raises
    ConfigurationError.
    """
    from wire.client.librdkafka_options import librdkafka_options
    from wire.client.security import load_security

    given = kafka_options()
    security = librdkafka_options(load_security(given)) if given else {}
    return {"bootstrap.servers": bootstrap_server, "client.id": "antipode-cli", "log_level": 0, **security}


def ask_cluster(
    bootstrap_server: str, work: Callable[[KafkaClient], Awaitable[Result]], *, is_site_local: bool = False
) -> Result:
    """Do `work` with a client of our own, for requests to one broker and for requests that
    librdkafka does not have.

    `is_site_local`: only the brokers of the site that was asked are known to the client. Raises
    OperationalFailure if the address is invalid, no broker answers, or a request fails.
    """
    from wire.client.client_errors import BrokerError, KafkaClientError

    async def run() -> Result:
        async with client_of(bootstrap_server, is_site_local=is_site_local) as client:
            try:
                return await work(client)
            except BrokerError as error:
                raise OperationalFailure(f"{error}{_hint(error.code)}") from error
            except KafkaClientError as error:
                raise OperationalFailure(str(error)) from error

    return asyncio.run(run())


def raise_refusal(result: Any, what: str) -> None:
    """Raise OperationalFailure with the broker's reason if a result of our own client is an
    error.
    """
    if result.error_code:
        hint = _hint(result.error_code)
        why = result.error_message or ("" if hint else "no reason given")
        raise OperationalFailure(f"{what}: {result.error_code.name.upper()}{': ' * bool(why)}{why}{hint}")


def _hint(code: ErrorCode) -> str:
    """What a person can do about a refusal for lack of a right or of an authorizer."""
    if code.name == "security_disabled":
        return " (set authorizer.class.name in the properties of the brokers; docs/acls.md)"
    is_denied = code.name.endswith("authorization_failed")
    return " (the log of that broker names the missing right; docs/acls.md)" if is_denied else ""


def client_of(bootstrap_server: str | Sequence[HostPort], *, is_site_local: bool = False) -> KafkaClient:
    """A client of our own. OperationalFailure when the address is no address."""
    from wire.client.connection import ConnectionOptions
    from wire.client.raw_client import KafkaClient

    try:
        brokers = parse_host_ports(bootstrap_server) if isinstance(bootstrap_server, str) else bootstrap_server
    except ValueError as error:
        raise OperationalFailure(f"--bootstrap-server {bootstrap_server!r} is not usable: {error}") from error
    options = ConnectionOptions(client_id="antipode-cli")
    return KafkaClient(brokers, options, site_local=is_site_local, retry_budget_ms=RETRY_BUDGET_MS)


def reason(error: KafkaException) -> str:
    """The message of the error, after Kafka's name for it."""
    found = error.args[0]
    return f"{found.name()}: {found.str()}"


@contextmanager
def refused_by_the_client(what: str) -> Iterator[None]:
    """A usage error instead of the ValueError or OverflowError with which librdkafka refuses to
    send a request: a number is out of its range.
    """
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise usage_error(f"{what}: {error}") from error


class NotAnswered(OperationalFailure):
    """No answer in time: the site may still execute the request."""


def result_of(outcome: Future[Result], what: str, *, timeout_s: float = TIMEOUT_S) -> Result:
    """Wait for it. OperationalFailure says what could not be done and why; NotAnswered if it may
    still be done.
    """
    from confluent_kafka import KafkaError, KafkaException

    try:
        return outcome.result(timeout=timeout_s)
    except KafkaException as error:
        is_late = error.args[0].code() in (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT)
        raise (NotAnswered if is_late else OperationalFailure)(f"{what}: {reason(error)}") from error
    except TimeoutError as error:
        raise NotAnswered(f"{what}: no answer within {timeout_s:g} s") from error


def topic_change_options() -> dict[str, float]:
    """The timeouts of a request for new partitions: the broker answers before the client gives
    up.
    """
    return {
        "operation_timeout": TOPIC_CHANGE_TIMEOUT_S,
        "request_timeout": TOPIC_CHANGE_TIMEOUT_S + ANSWER_MARGIN_S,
    }


def changed_topic(outcome: Future[Any], what: str, *, client: Any, topic: str) -> None:
    """Wait for a request for new partitions. If it is not answered in time, the error says which
    partitions the topic has.
    """
    try:
        result_of(outcome, what, timeout_s=TOPIC_CHANGE_TIMEOUT_S + 2 * ANSWER_MARGIN_S)
    except NotAnswered as error:
        raise NotAnswered(f"{error}. {_found_later(client, topic)}") from error


def is_shown(client: Any, topic: str) -> bool:
    """Wait until a broker shows the topic that was created; False if none does in time. Brokers
    make thousands of logs for longer than the controller waits for them.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TOPIC_CHANGE_TIMEOUT_S
    while True:
        try:
            found = client.list_topics(topic=topic, timeout=TIMEOUT_S).topics.get(topic)
        except KafkaException:
            found = None
        if found is not None and found.error is None:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOADING_PAUSE_S)


def _found_later(client: Any, topic: str) -> str:
    from confluent_kafka import KafkaException

    look = f"`antipode topics describe {topic}` shows it later"
    try:
        # all topics: a request for a name may create the topic (auto.create.topics.enable)
        found = client.list_topics(timeout=TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        return f"Whether topic {topic} has them is not known ({reason(error)}): {look}"
    if found is None or found.error is not None:
        return f"Topic {topic} is not there yet, but the controller may still create it: {look}"
    return f"Topic {topic} is there with {len(found.partitions)} partitions, which may still start: {look}"


def answer_of(ask: Callable[[], Future[Result]], what: str) -> Result:
    """Like `result_of`, for requests to coordinators: retries while a new coordinator is
    loading.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        outcome = ask()
        if not _is_loading(outcome) or time.monotonic() > deadline:
            return result_of(outcome, what)
        time.sleep(LOADING_PAUSE_S)


def _is_loading(outcome: Future[Any]) -> bool:
    from confluent_kafka import KafkaError, KafkaException

    try:
        answered = outcome.result(timeout=TIMEOUT_S)
    except KafkaException as error:
        errors = [error]
    except TimeoutError:
        return False
    else:
        errors = getattr(answered, "errors", None) or []
    found = {(error.args[0] if isinstance(error, KafkaException) else error).code() for error in errors}
    return found == {KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


def settings(pairs: list[str] | None, option: str) -> Mapping[str, str]:
    """`key=value` options as a mapping. A usage error names the text that cannot be parsed, and a
    key that is given twice.
    """
    found: dict[str, str] = {}
    for text in pairs or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise usage_error(f"{option} {text!r} is not usable: accepted is key=value")
        if key.strip() in found:
            raise usage_error(
                f"{option} {text!r} is not usable: {key.strip()} is given already; accepted is each key once"
            )
        found[key.strip()] = value.strip()
    return found


def config_changes(set_: list[str] | None, unset: list[str] | None) -> tuple[dict[str, str], list[str]]:
    """The configs to set and those to remove. A usage error names a key that is in both."""
    changed, removed = dict(settings(set_, "--set")), list(dict.fromkeys(key.strip() for key in unset or ()))
    both = [key for key in removed if key in changed]
    if both:
        raise usage_error(f"--unset {both[0]!r} contradicts --set {both[0]}={changed[both[0]]}: give one of the two")
    return changed, removed


def refuse_unknown_configs(removed: Iterable[str], known: Collection[str], what: str) -> None:
    """OperationalFailure for a config to remove that the topic or broker does not have: brokers
    accept the removal of any key.
    """
    unknown = [key for key in removed if key not in known]
    if unknown:
        raise OperationalFailure(
            f"{what}: --unset {unknown[0]!r} is not the key of a config; accepted are those of "
            f"`antipode configs show --defaults`"
        )
