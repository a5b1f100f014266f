"""The properties file: classic names, old spellings, errors that name the key."""

from __future__ import annotations

import pytest

from mirror.link.core.link_roles import GapPolicy
from mirror.settings.config import MirrorConfig, load_config, verdicts_on
from mirror.settings.core.own_keys import OF_EXACT_LINKS, OF_TRANSLATE_LINKS
from mirror.settings.translate_settings import TranslateSettings
from mirror.settings.values import split_patterns
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError

LEAST = {"link.name": "a-b", "site.agents": "h:1, g:2"}


def test_the_least_file_has_defaults_that_never_lose_anything() -> None:
    config = load_config(LEAST)
    assert config.site_agents == (HostPort("h", 1), HostPort("g", 2))
    assert config.queue_enqueue_timeout_ms == -1
    assert config.gap_policy is GapPolicy.HALT
    assert config.whitelist is None


def test_old_spellings_count_unless_the_present_one_is_there() -> None:
    assert load_config(LEAST | {"queue.enqueueTimeout.ms": "0"}).queue_enqueue_timeout_ms == 0
    both = LEAST | {"queue.enqueueTimeout.ms": "0", "queue.enqueue.timeout.ms": "7"}
    assert load_config(both).queue_enqueue_timeout_ms == 7
    assert load_config(LEAST | {"topics.exclude": "x"}).blacklist == ("x",)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("orders,flights", ("orders", "flights")),
        (' "orders" , flights ', ("orders", "flights")),
        (r"a{1,3}b,[x,y]z", ("a{1,3}b", "[x,y]z")),
        ("", ()),
    ],
)
def test_lists_of_expressions(text: str, wanted: tuple[str, ...]) -> None:
    assert split_patterns(text) == wanted


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("whitelist", "(["),
        ("num.streams", "0"),
        ("num.producers", "many"),
        ("queue.byte.size", "12"),
        ("queue.enqueue.timeout.ms", "-2"),
        ("site.agents", "nowhere"),
        ("site.agents", ""),
        ("antipode.metrics.listener", "9090"),
        ("antipode.gap.policy", "ignore"),
        ("abort.on.send.failure", "perhaps"),
        ("replication.factor", "0"),
        ("replication.policy.separator", "/"),
        ("topic.naming.table", "a=b/c"),
        ("antipode.pause.file", "/nowhere/at/all/pauses"),
    ],
)
def test_an_unusable_value_is_named_with_its_key(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=key) as caught:
        load_config(LEAST | {key: value})
    assert caught.value.key == key


TRANSLATE = {
    "link.name": "a-b",
    "link.mode": "translate",
    "source.bootstrap.servers": "h:1",
    "target.bootstrap.servers": "g:1",
    "antipode.target.transactions": "true",
}


def test_transactions_at_the_target_are_an_option_of_translate_links() -> None:
    assert load_config(TRANSLATE).is_transactional
    assert not load_config(LEAST).is_transactional


@pytest.mark.parametrize(
    ("given", "key", "accepted"),
    [
        (LEAST | {"antipode.target.transactions": "true"}, "antipode.target.transactions", "link.mode=translate"),
        (
            TRANSLATE | {"antipode.target.transactions.timeout.ms": "1500"},
            "antipode.target.transactions.timeout.ms",
            "twice",
        ),
    ],
)
def test_settings_that_transactions_do_not_go_with_are_refused(given: dict[str, str], key: str, accepted: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_config(given)
    assert refused.value.key == key
    assert accepted in refused.value.accepted


def test_exactly_the_keys_without_effect_are_reported() -> None:
    good = LEAST | {
        "num.streams": "2",
        "source.security.protocol": "PLAINTEXT",
        "topics": "x",
        "config.providers": "file",
    }
    assert verdicts_on(good) == ()
    given = {
        "num.stream": "4",
        "queue.enqueueTimeout.ms": "0",
        "queue.enqueue.timeout.ms": "7",
        "groups": "app-.*",
        "something.else": "1",
    }
    assert [(one.key, one.fate.value, one.explanation) for one in verdicts_on(LEAST | given)] == [
        ("num.stream", "unknown", "is num.streams meant?"),
        ("queue.enqueueTimeout.ms", "not honoured", "queue.enqueue.timeout.ms is used, which is in the file too"),
        ("groups", "not honoured", "it applies only to link.mode=translate"),
        ("something.else", "unknown", "no setting of a mirror"),
    ]
    (verdict,) = verdicts_on(TRANSLATE | {"site.agents": "h:1"})
    assert (verdict.key, verdict.explanation) == ("site.agents", "it applies only to link.mode=exact")
    (verdict,) = verdicts_on(TRANSLATE | {"topic.naming.table": "a=b"})
    assert (verdict.key, verdict.explanation) == (
        "topic.naming.table",
        "it applies only with topic.naming.policy=table",
    )
    (verdict,) = verdicts_on(LEAST | {"antipode.sharing.zookeeper.connect": "z:1"})
    assert verdict.explanation == "it applies only with antipode.sharing.enabled=true"
    session = {"antipode.sharing.session.timeout.ms": "3000"}
    assert not verdicts_on(TRANSLATE | {"antipode.target.transactions": "false"} | session)
    for other in (LEAST, TRANSLATE):
        (verdict,) = verdicts_on(other | session)
        assert verdict.explanation.endswith("or on translate links without transactions")


def test_each_setting_of_translate_links_is_known_as_one() -> None:
    keys = [field.alias or name for name, field in MirrorConfig.model_fields.items()]
    of_translate_links = [field.alias for field in TranslateSettings.model_fields.values()]
    assert [key for key in keys if OF_TRANSLATE_LINKS.fullmatch(key)] == of_translate_links
    assert [key for key in keys if OF_EXACT_LINKS.fullmatch(key)] == ["site.agents", "link.refresh.interval.ms"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("queue.size", "queue.byte.size"),
        ("offset.commit.interval.ms", "group.sync.interval.ms"),
        ("consumer.config", "source.bootstrap.servers"),
        ("producer.config", "target.bootstrap.servers"),
        ("message.handler", "topic.naming.table"),
    ],
)
def test_options_of_the_first_mirror_maker_are_named_with_what_serves_instead(key: str, hint: str) -> None:
    (verdict,) = [one for one in verdicts_on({**LEAST, key: "whatever"}) if one.key == key]
    assert hint in verdict.explanation
