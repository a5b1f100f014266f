"""Options of the data source: Kafka's defaults, and a refusal with key, value and what is accepted
for everything else.
"""

from __future__ import annotations

import pytest

from spark_jobs.connector.core.offsets import BoundKind
from spark_jobs.connector.core.options import READ_COMMITTED, Mode, Use, accepted_options, parse_read, parse_write
from spark_jobs.logs.core.cluster_options import InvalidOption

SECURITY = ("security.protocol", "sasl.jaas.config")
LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "a, b"}


def test_the_defaults_are_those_of_the_kafka_connector() -> None:
    batch, stream = parse_read(LEAST, Use.READ, SECURITY), parse_read(LEAST, Use.READ_STREAM, SECURITY)
    assert (batch.starting.kind, batch.ending.kind) == (BoundKind.EARLIEST, BoundKind.LATEST)
    assert stream.starting.kind is BoundKind.LATEST
    assert (batch.mode, batch.has_headers, batch.is_failing_on_loss) == (Mode.RECORDS, False, True)
    assert batch.subscription.topics == {"a", "b"}


def test_names_are_compared_without_regard_to_case_and_security_is_handed_on() -> None:
    found = parse_read(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "subscribepattern": "orders-.*",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "SSL",
            "MAXOFFSETSPERTRIGGER": "10",
        },
        Use.READ_STREAM,
        SECURITY,
    )
    assert found.cluster.security == (("security.protocol", "SSL"),)
    assert (found.isolation_level, found.offsets_per_trigger) == (READ_COMMITTED, 10)
    assert found.subscription.has("orders-1")
    assert not found.subscription.has("my-orders-1")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("", 900_000), ("15m", 900_000), ("2min", 120_000), ("10s", 10_000), ("250", 250), ("3H", 10_800_000)],
)
def test_a_trigger_waits_for_offsets_or_a_time_in_the_form_of_spark(text: str, expected_ms: int) -> None:
    given = {"maxTriggerDelay": text} if text else {}
    found = parse_read(LEAST | given | {"minOffsetsPerTrigger": "7"}, Use.READ_STREAM, SECURITY)
    assert (found.offsets_per_trigger_min, found.trigger_delay_ms_max) == (7, expected_ms)


@pytest.mark.parametrize(
    ("use", "options", "message"),
    [
        (Use.READ, {"strat": "x"}, "option strat is 'x'; accepted: for read "),
        (Use.READ, {"maxOffsetsPerTrigger": "1"}, "option maxOffsetsPerTrigger is '1'; accepted: for read "),
        (Use.READ_STREAM, {"endingOffsets": "latest"}, "accepted: for readStream "),
        (Use.READ_STREAM, {"mode": "headers"}, "option mode is 'headers'; accepted: for readStream records"),
        (Use.READ, {"mode": "row"}, "option mode is 'row'; accepted: records, headers, digests, stored"),
        (Use.READ, {"assign": "{}"}, "not together with assign"),
        (Use.READ, {"startingOffsets": "earliest", "startingTimestamp": "1"}, "not together with startingTimestamp"),
        (Use.READ, {"startingOffsets": "latest"}, "for a batch earliest"),
        (Use.READ, {"startingOffsets": '{"a": {"0": -1}}'}, "for a batch earliest"),
        (Use.READ, {"endingOffsets": "earliest"}, "accepted: latest"),
        (Use.READ, {"startingOffsetsByTimestamp": '{"a": {"0": -2}}'}, "accepted: times in Unix ms, from 0 on"),
        (Use.READ, {"endingOffsetsByTimestamp": '{"a": {"0": 5, "1": -1}}'}, "accepted: times in Unix ms, from 0 on"),
        (Use.READ, {"endingOffsets": "{"}, "option endingOffsets is '{'; accepted: it is not JSON such as"),
        (
            Use.READ_STREAM,
            {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
            "option minOffsetsPerTrigger is '11'; accepted: at most maxOffsetsPerTrigger, 10",
        ),
        (Use.READ_STREAM, {"maxTriggerDelay": "10 weeks"}, "accepted: a number with us, ms, s, m, min, h, d"),
        (
            Use.READ_STREAM,
            {"antipode.progress.group": "g", "antipode.site": "a"},
            "option antipode.progress.group is 'g'; accepted: not together with antipode.site",
        ),
        (Use.READ, {"minPartitions": "0"}, "option minPartitions is '0'; accepted: a number from 1 on"),
        (Use.READ, {"failOnDataLoss": "no"}, "option failOnDataLoss is 'no'; accepted: true, false"),
        (Use.READ, {"includeHeaders": "true", "mode": "headers"}, "only with mode=records"),
        (
            Use.READ,
            {"antipode.verify.checksums": "false"},
            "option antipode.verify.checksums is 'false'; accepted: only",
        ),
        (Use.READ, {"subscribe": " ,"}, "names of topics"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(use: Use, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_read(LEAST | options, use, SECURITY)
    assert message in str(refused.value)


def test_a_subscription_and_servers_are_needed() -> None:
    with pytest.raises(InvalidOption, match="one of assign, subscribe, subscribePattern is needed"):
        parse_read({"kafka.bootstrap.servers": "h:1"}, Use.READ, SECURITY)
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers"):
        parse_read({"subscribe": "a"}, Use.READ, SECURITY)


def test_a_sink_has_options_of_its_own() -> None:
    found = parse_write(
        {"kafka.bootstrap.servers": "h:1", "topic": "out", "checkpointLocation": "x", "kafka.acks": "all"},
        Use.WRITE_STREAM,
        SECURITY,
    )
    assert (found.topic, found.compression) == ("out", "none")
    with pytest.raises(InvalidOption, match=r"kafka\.compression\.type is 'br'"):
        parse_write({"kafka.bootstrap.servers": "h:1", "kafka.compression.type": "br"}, Use.WRITE, SECURITY)
    assert "subscribe" not in accepted_options(Use.WRITE, SECURITY)
