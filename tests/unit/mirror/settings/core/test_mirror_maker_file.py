"""An unchanged MirrorMaker 2 file: flows, precedence, a verdict for each key, and refusals."""

from __future__ import annotations

import pytest

from mirror.link.core.topic_naming import NamingPolicy
from mirror.settings.config import load_configs, verdicts_on
from mirror.settings.configured_link import link_view_of
from mirror.settings.core.mirror_maker_file import read_mirror_maker_file
from mirror.settings.core.mirror_maker_keys import Fate, UnusableFile
from mirror.settings.values import LinkMode
from runtime.configuration import ConfigurationError
from tests.support.processes.java_key_stores import JavaKeyStores
from wire.client.security import SecurityProtocol
from wire.rules.links import carries_topic
from wire.tls.core.reading import Format

FILE = {
    "clusters": "primary, backup",
    "primary.bootstrap.servers": "p1:9092,p2:9092",
    "backup.bootstrap.servers": "b1:9092",
    "primary->backup.enabled": "true",
    "primary->backup.topics": "orders.*, payments",
    "backup->primary.enabled": "false",
    "topics": ".*",
    "groups": "app-.*",
    "replication.factor": "3",
    "tasks.max": "10",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "5",
    "emit.checkpoints.interval.seconds": "10",
    "offset.lag.max": "10",
    "sync.topic.acls.enabled": "true",
    "checkpoints.topic.replication.factor": "1",
    "primary.consumer.isolation.level": "read_committed",
    "backup.consumer.isolation.level": "read_uncommitted",
    "backup.producer.compression.type": "zstd",
    "backup.producer.max.request.size": "2000000",
    "primary.producer.max.request.size": "1000000",
    "exactly.once.source.support": "enabled",
    "some.thing": "else",
}


def test_each_enabled_flow_becomes_a_link() -> None:
    (config,) = load_configs(FILE)
    assert config.link_mode is LinkMode.TRANSLATE
    assert (config.link_name, config.source_alias, config.target_alias) == ("primary-backup", "primary", "backup")
    assert [str(address) for address in config.source_bootstrap_servers] == ["p1:9092", "p2:9092"]
    assert config.whitelist == ("orders.*", "payments"), "a flow's own setting counts before the general one"
    assert config.group_whitelist == ("app-.*",)
    assert config.replication_factor == 3
    assert config.group_sync_interval_ms == 5000
    assert config.checkpoints_interval_ms == 10_000
    assert config.naming_policy is NamingPolicy.PREFIX


def test_clients_settings_count_for_their_own_side() -> None:
    (config,) = load_configs(FILE)
    assert config.is_read_committed
    assert config.request_max_bytes == 2_000_000


def test_mirror_maker_s_defaults_stand_where_the_file_says_nothing() -> None:
    silent = {
        key: value for key, value in FILE.items() if key.startswith(("clusters", "primary.b", "backup.b", "primary->"))
    }
    (config,) = load_configs(silent)
    assert not config.is_syncing_groups
    assert not config.is_read_committed
    assert config.replication_factor == 2
    assert config.blacklist == (r"mm2.*\.internal", r".*\.replica", "__.*")
    assert config.heartbeats_replication_factor is None


def test_every_key_of_the_file_gets_a_verdict() -> None:
    verdicts = {verdict.key: verdict for verdict in verdicts_on(FILE)}
    assert list(verdicts) == list(FILE)
    assert verdicts["tasks.max"].fate is Fate.NOT_NEEDED
    assert verdicts["sync.topic.acls.enabled"].fate is Fate.USED
    assert verdicts["some.thing"].fate is Fate.UNKNOWN
    assert all(verdict.explanation for verdict in verdicts.values())


@pytest.mark.parametrize(
    ("key", "value", "fate"),
    [
        ("primary.consumer.auto.offset.reset", "earliest", Fate.NOT_NEEDED),
        ("primary.consumer.auto.offset.reset", "latest", Fate.NOT_HONOURED),
        ("refresh.topics.enabled", "true", Fate.NOT_NEEDED),
        ("refresh.topics.enabled", "false", Fate.NOT_HONOURED),
        ("topic.filter.class", "org.apache.kafka.connect.mirror.DefaultTopicFilter", Fate.NOT_NEEDED),
        ("topic.filter.class", "com.example.Filter", Fate.NOT_HONOURED),
        ("refresh.topics.interval.seconds", "-1", Fate.NOT_HONOURED),
        ("primary->backup.consumer.client.rack", "east", Fate.NOT_HONOURED),
        ("backup.producer.max.block.ms", "5", Fate.NOT_NEEDED),
        ("backup.producer.compression.type", "zstd", Fate.NOT_HONOURED),
        ("primary->backup.transforms", "mask", Fate.NOT_HONOURED),
        ("primary->backup.transforms.mask.type", "com.example.Mask", Fate.NOT_HONOURED),
        ("metric.names.formats", "legacy,new", Fate.USED),
        ("backup.metric.names.formats", "new", Fate.NOT_HONOURED),
        ("use.defaults.from", "source", Fate.NOT_HONOURED),
        ("backup.replication.factor", "1", Fate.NOT_HONOURED),
        ("primary->gone.topics", "x", Fate.NOT_HONOURED),
        ("gone->backup.enabled", "false", Fate.NOT_HONOURED),
        ("admin.timeout.ms", "60000", Fate.NOT_NEEDED),
        ("sasl.login.refresh.window.factor", "0.8", Fate.NOT_NEEDED),
    ],
)
def test_a_value_that_asks_for_something_unavailable_has_a_verdict(key: str, value: str, fate: Fate) -> None:
    (verdict,) = [one for one in verdicts_on({**FILE, key: value}) if one.key == key]
    assert verdict.fate is fate


def test_a_negative_interval_means_never_as_in_mirror_maker() -> None:
    (config,) = load_configs(
        {**FILE, "emit.heartbeats.interval.seconds": "-1", "sync.topic.configs.interval.seconds": "-1"}
    )
    assert not config.is_emitting_heartbeats
    assert not config.is_syncing_configs
    (config,) = load_configs({**FILE, "sync.group.offsets.interval.seconds": "0"})
    assert config.group_sync_interval_ms == 1000


@pytest.mark.parametrize(
    ("value", "is_on"),
    [("enabled", True), (" Enabled ", True), ("required", True), ("preparing", False), ("disabled", False)],
)
def test_exactly_once_source_support_turns_transactions_on_for_its_flows(value: str, is_on: bool) -> None:
    file = {**FILE, "exactly.once.source.support": value}
    (config,) = load_configs(file)
    assert config.is_transactional is is_on
    (verdict,) = [one for one in verdicts_on(file) if one.key == "exactly.once.source.support"]
    assert verdict.fate is Fate.USED
    assert f"antipode.target.transactions={str(is_on).lower()}" in verdict.explanation


@pytest.mark.parametrize("key", ["exactly.once.source.support", "backup.exactly.once.source.support"])
@pytest.mark.parametrize("value", ["enable", "true", "", "exactly_once"])
def test_a_misspelt_exactly_once_is_refused_and_switches_nothing_off(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_configs({**FILE, key: value})
    for said in (key, value, "disabled, preparing, enabled, required"):
        assert said in str(refused.value)


def test_both_directions_make_two_links() -> None:
    configs = load_configs({**FILE, "backup->primary.enabled": "true"})
    assert [config.link_name for config in configs] == ["primary-backup", "backup-primary"]


def test_a_site_may_take_only_the_flows_that_end_there() -> None:
    """As `connect-mirror-maker.sh FILE --clusters west`, with one file for all sites."""
    file = {**FILE, "backup->primary.enabled": "true"}
    assert [config.link_name for config in load_configs(file, targets=["primary"])] == ["backup-primary"]
    with pytest.raises(ConfigurationError, match=r"--clusters.*backup, primary"):
        load_configs(file, targets=["elsewhere"])
    with pytest.raises(ConfigurationError, match="requires a MirrorMaker 2 file"):
        load_configs({"link.name": "a-b", "site.agents": "x:1"}, targets=["b"])


def test_identity_policy_by_its_class() -> None:
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    (config,) = load_configs({**FILE, "replication.policy.class": policy})
    assert config.naming.target_name("orders") == "orders"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"clusters": "primary"}, "clusters"),
        ({"primary->nowhere.enabled": "true"}, "primary->nowhere.enabled"),
        ({"primary->backup.enabled": "false"}, "clusters"),
        ({"replication.policy.class": "com.example.Policy"}, "replication.policy.class"),
        ({"primary.sasl.kerberos.service.name": "kafka"}, "primary.sasl.kerberos.service.name"),
        (
            {"primary.sasl.oauthbearer.assertion.private.key.passphrase": "secret words"},
            "primary.sasl.oauthbearer.assertion.private.key.passphrase",
        ),
        ({"sync.group.offsets.interval.seconds": "soon"}, "sync.group.offsets.interval.seconds"),
        ({"primary->backup.enabled": "yes"}, "primary->backup.enabled"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_by_its_key(change: dict[str, str], key: str) -> None:
    with pytest.raises(UnusableFile) as refused:
        read_mirror_maker_file({**FILE, **change})
    assert refused.value.key == key
    assert "secret words" not in str(refused.value)
    with pytest.raises(ConfigurationError):
        load_configs({**FILE, **change})


@pytest.mark.parametrize("key", ["primary->backup.topics", "groups", "backup.producer.max.request.size"])
def test_an_unusable_value_is_named_as_in_the_file(key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_configs({**FILE, key: "(["})
    assert (refused.value.key, refused.value.value) == (key, "([")


def test_of_two_spellings_the_present_one_counts_wherever_it_stands() -> None:
    old, new = {"topics.blacklist": "x"}, {"topics.exclude": "y"}
    for file in ({**FILE, **old, **new}, {**FILE, **new, **old}):
        (config,) = load_configs(file)
        assert config.blacklist == ("y",)
        fates = {one.key: one.fate for one in verdicts_on(file)}
        assert (fates["topics.blacklist"], fates["topics.exclude"]) == (Fate.NOT_HONOURED, Fate.USED)


def test_an_empty_list_of_topics_carries_none_as_in_mirror_maker() -> None:
    (config,) = load_configs({**FILE, "primary->backup.topics": "", "heartbeats.replication.enabled": "false"})
    assert not carries_topic(link_view_of(config).record, "orders")


def test_a_misspelt_key_is_asked_for() -> None:
    (verdict,) = [one for one in verdicts_on({**FILE, "primary->backup.enbled": "true"}) if "enb" in one.key]
    assert verdict.fate is Fate.UNKNOWN
    assert "is enabled meant?" in verdict.explanation


def test_exactly_once_of_a_cluster_counts_where_it_is_written_to() -> None:
    file = {key: value for key, value in FILE.items() if key != "exactly.once.source.support"}
    file |= {"backup.exactly.once.source.support": "enabled", "backup->primary.enabled": "true"}
    assert [config.is_transactional for config in load_configs(file)] == [True, False]


def test_a_client_s_number_is_fitted_to_what_there_is_here() -> None:
    file = {**FILE, "primary.consumer.fetch.max.wait.ms": "60000"}
    (config,) = load_configs(file)
    assert config.fetch_wait_max_ms == 30_000
    (verdict,) = [one for one in verdicts_on(file) if one.key == "primary.consumer.fetch.max.wait.ms"]
    assert "30000" in verdict.explanation


def test_a_setting_that_counts_for_both_ends_is_said_to() -> None:
    file = {**FILE, "backup.producer.request.timeout.ms": "50"}
    (config,) = load_configs(file)
    assert config.request_timeout_ms == 100
    (verdict,) = [one for one in verdicts_on(file) if one.key == "backup.producer.request.timeout.ms"]
    assert verdict.explanation.endswith("100 being its limit, for requests to both clusters")


@pytest.mark.parametrize("form", ["producer.{}", "producer.override.{}", "target.producer.{}"])
def test_a_flow_s_own_client_settings_count_before_the_cluster_s(form: str) -> None:
    (config,) = load_configs({**FILE, f"primary->backup.{form.format('max.request.size')}": "3000000"})
    assert config.request_max_bytes == 3_000_000


def test_a_flow_may_reach_a_cluster_in_its_own_way() -> None:
    (config,) = load_configs({**FILE, "primary->backup.source.cluster.bootstrap.servers": "inside:9092"})
    assert [str(address) for address in config.source_bootstrap_servers] == ["inside:9092"]
    assert [str(address) for address in config.target_bootstrap_servers] == ["b1:9092"]


def test_a_flow_s_client_security_is_for_its_own_end() -> None:
    ends = {"consumer": "SSL", "target.admin": "SASL_PLAINTEXT"}
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="m" password="secret";'
    given = {f"primary->backup.{side}.security.protocol": protocol for side, protocol in ends.items()}
    given |= {"primary->backup.producer.sasl.mechanism": "PLAIN", "primary->backup.producer.sasl.jaas.config": login}
    (config,) = load_configs({**FILE, **given})
    assert config.source_security.protocol is SecurityProtocol.SSL
    assert config.target_security.protocol is SecurityProtocol.SASL_PLAINTEXT


def test_enabled_without_a_flow_is_for_all_that_are_not_switched_off() -> None:
    file = {**FILE, "clusters": "primary, backup, third", "third.bootstrap.servers": "t1:9092", "enabled": "true"}
    names = [config.link_name for config in load_configs(file)]
    assert "third-backup" in names
    assert "backup-primary" not in names
    assert len(names) == 5


def test_names_of_clusters_may_have_full_stops() -> None:
    file = {"clusters": "us, us.west", "us.bootstrap.servers": "e:1", "us.west.bootstrap.servers": "w:1"}
    (config,) = load_configs({**file, "us->us.west.enabled": "true", "us->us.west.topics": "orders"})
    assert (config.target_alias, config.whitelist) == ("us.west", ("orders",))
    assert [str(address) for address in config.target_bootstrap_servers] == ["w:1"]


def test_internal_topics_have_their_own_separator_and_replicas() -> None:
    file = {
        **FILE,
        "replication.policy.separator": "_",
        "replication.policy.internal.topic.separator.enabled": "false",
        "primary->backup.heartbeats.topic.replication.factor": "2",
    }
    (config,) = load_configs(file)
    assert config.naming.checkpoints_topic == "primary.checkpoints.internal"
    assert config.heartbeats_replication_factor == 2
    assert config.checkpoints_replication_factor == 1


@pytest.mark.parametrize(("value", "is_carried"), [("true", True), ("false", False)])
def test_heartbeats_are_mirrored_whatever_the_filters_say_unless_they_shall_not(value: str, is_carried: bool) -> None:
    (config,) = load_configs({**FILE, "heartbeats.replication.enabled": value, "emit.heartbeats.enabled": "false"})
    record = link_view_of(config).record
    assert carries_topic(record, "heartbeats") is carries_topic(record, "third.heartbeats") is is_carried
    assert not carries_topic(record, "backup.heartbeats")
    assert carries_topic(record, "orders.internal")
    assert not carries_topic(record, "orders.replica")


def test_plaintext_is_what_it_is_anyway() -> None:
    assert load_configs({**FILE, "security.protocol": "PLAINTEXT"})


def test_a_cluster_s_security_is_for_its_own_end_of_each_flow() -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="secret";'
    secured = {
        "backup.security.protocol": "SASL_PLAINTEXT",
        "backup.sasl.mechanism": "SCRAM-SHA-512",
        "backup.sasl.jaas.config": login,
        "backup->primary.enabled": "true",
    }
    there, back = load_configs({**FILE, **secured})
    secured_by = SecurityProtocol.SASL_PLAINTEXT
    assert (there.source_security.protocol, there.target_security.protocol) == (SecurityProtocol.PLAINTEXT, secured_by)
    assert (back.source_security.protocol, back.target_security.protocol) == (secured_by, SecurityProtocol.PLAINTEXT)
    assert there.target_security.mechanism == "SCRAM-SHA-512"
    assert not any("secret" in verdict.explanation for verdict in verdicts_on({**FILE, **secured}))


def test_java_s_key_stores_and_their_passwords_are_for_their_own_end() -> None:
    given = {
        "ssl.truststore.location": "/etc/all.jks",
        "ssl.truststore.password": "secret of all",
        "primary.ssl.keystore.location": "/etc/primary.jks",
        "primary.consumer.ssl.keystore.password": "secret of the store",
        "primary->backup.source.admin.ssl.key.password": "secret of the key",
        "backup.producer.ssl.truststore.location": "/etc/backup.p12",
        "backup.admin.ssl.truststore.type": "PKCS12",
        "primary->backup.producer.override.ssl.truststore.password": "secret of the target",
    }
    (config,) = load_configs({**FILE, **given})
    source, target = config.source_security, config.target_security
    assert (str(source.truststore), str(source.keystore)) == ("/etc/all.jks", "/etc/primary.jks")
    secrets = (source.truststore_password, source.keystore_password, source.key_password, target.truststore_password)
    assert [secret and secret.get_secret_value().removeprefix("secret of ") for secret in secrets] == [
        "all",
        "the store",
        "the key",
        "the target",
    ]
    assert (str(target.truststore), target.truststore_type, target.keystore) == ("/etc/backup.p12", Format.PKCS12, None)
    verdicts = [verdict for verdict in verdicts_on({**FILE, **given}) if verdict.key in given]
    assert {verdict.fate for verdict in verdicts} == {Fate.USED}
    assert not any("secret" in verdict.explanation for verdict in verdicts)
    assert "secret of" not in repr(config)


def test_a_store_that_cannot_be_opened_is_refused_with_its_end(java_key_stores: JavaKeyStores) -> None:
    store = {"ssl.truststore.location": str(java_key_stores.trust["jks"]), "ssl.truststore.password": "secret words"}
    given = {f"backup.{key}": value for key, value in {**store, "security.protocol": "SSL"}.items()}
    with pytest.raises(ConfigurationError, match=r"trust\.jks") as refused:
        load_configs({**FILE, **given})
    assert refused.value.key == "backup.ssl.truststore.password"
    assert "secret words" not in str(refused.value)


def test_security_without_a_cluster_is_for_both_ends() -> None:
    (config,) = load_configs({**FILE, "security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""})
    for security in (config.source_security, config.target_security):
        context = security.ssl_context()
        assert context is not None
        assert not context.check_hostname


def test_a_login_that_cannot_be_used_is_refused_without_repeating_it() -> None:
    login = {"primary.sasl.jaas.config": "secret words", "primary.sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigurationError) as refused:
        load_configs({**FILE, **login, "primary.security.protocol": "SASL_PLAINTEXT"})
    assert "secret words" not in str(refused.value)
