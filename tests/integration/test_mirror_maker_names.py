"""Names that people have in their files and on their dashboards, as Apache Kafka's own classes of
MirrorMaker 2 give them.

The keys come from the list of `tests/golden/test_mirror_maker_keys.py`, the metrics from
`docs/metrics.md`, which is generated from our own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.core import UnknownMetricFamily

from deploy import jar_sets
from mirror.settings.core.mirror_maker_keys import NamesFormat
from mirror.settings.metric_names import in_formats
from tests.support.clients.java_clients import KafkaPrograms

pytestmark = [pytest.mark.integration, pytest.mark.java]

KEYS = Path(__file__).parents[1] / "golden" / "mirror" / "mirror_maker_keys.txt"
METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
LIST_OF_KEYS = """
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.apache.kafka.connect.runtime.distributed.Crypto;
import org.apache.kafka.connect.runtime.rest.RestServerConfig;

public class MirrorMakerKeys {
    private static final String MIRROR = "org.apache.kafka.connect.mirror.";

    public static void main(String[] none) throws Exception {
        ConfigDef rest = new ConfigDef();
        RestServerConfig.addPublicConfig(rest);
        Method worker = Class.forName("org.apache.kafka.connect.runtime.distributed.DistributedConfig")
            .getDeclaredMethod("config", Crypto.class);
        Method file = Class.forName(MIRROR + "MirrorMakerConfig").getDeclaredMethod("config");
        worker.setAccessible(true);
        file.setAccessible(true);
        print("file", (ConfigDef) file.invoke(null), (ConfigDef) worker.invoke(null, Crypto.SYSTEM), rest);
        print("flow", SourceConnectorConfig.configDef(),
            constant("MirrorSourceConfig", "CONNECTOR_CONFIG_DEF"), constant("MirrorSourceTaskConfig", "TASK_CONFIG_DEF"),
            constant("MirrorCheckpointConfig", "CONNECTOR_CONFIG_DEF"),
            constant("MirrorCheckpointTaskConfig", "TASK_CONFIG_DEF"),
            constant("MirrorHeartbeatConfig", "CONNECTOR_CONFIG_DEF"), constant("MirrorClientConfig", "CONFIG_DEF"),
            constant("DefaultTopicFilter$TopicFilterConfig", "DEF"), constant("DefaultGroupFilter$GroupFilterConfig", "DEF"),
            constant("DefaultConfigPropertyFilter$ConfigPropertyFilterConfig", "DEF"));
        print("producer", ProducerConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("admin", AdminClientConfig.configDef());
    }

    private static ConfigDef constant(String type, String name) throws Exception {
        Field field = Class.forName(MIRROR + type).getDeclaredField(name);
        field.setAccessible(true);
        return (ConfigDef) field.get(null);
    }

    private static void print(String scope, ConfigDef... definitions) {
        TreeSet<String> names = new TreeSet<>();
        for (ConfigDef definition : definitions) names.addAll(definition.names());
        names.forEach(name -> System.out.println(scope + " " + name));
    }
}
"""
"""Prints `scope key`: of the file and the workers below it, of connectors and their filters and
policies, of each kind of client.
"""


FIGURES = """
import java.lang.reflect.Field;
import org.apache.kafka.common.MetricNameTemplate;

public class MirrorMakerFigures {
    public static void main(String[] none) throws Exception {
        for (String type : new String[] {"MirrorSourceLegacyMetrics", "MirrorCheckpointLegacyMetrics"})
            for (Field field : Class.forName("org.apache.kafka.connect.mirror." + type).getDeclaredFields())
                if (field.getType() == MetricNameTemplate.class) {
                    field.setAccessible(true);
                    MetricNameTemplate figure = (MetricNameTemplate) field.get(null);
                    System.out.println(figure.group() + " " + figure.name() + " " + String.join(",", figure.tags()));
                }
    }
}
"""
"""Prints `group name tags` of every figure that MirrorMaker has by default."""


NEW_FIGURES = """
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.ConnectMetrics;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.util.ConnectorTaskId;

public class NewFigures {
    private static final String MIRROR = "org.apache.kafka.connect.mirror.";
    private static final Map<String, String> TASK = Map.of("name", "m", "connector.class", "none", "source.cluster.alias", "a",
        "target.cluster.alias", "b", "task.assigned.partitions", "orders-0", "task.assigned.groups", "billing");

    public static void main(String[] none) throws Exception {
        String json = "org.apache.kafka.connect.json.JsonConverter";
        ConnectMetrics metrics = new ConnectMetrics("w", new StandaloneConfig(Map.of("bootstrap.servers", "localhost:1",
            "key.converter", json, "value.converter", json, "offset.storage.file.filename", "f")), Time.SYSTEM, "c");
        Method ofTask = ConnectMetrics.class.getDeclaredMethod("taskPluginMetrics", ConnectorTaskId.class);
        ofTask.setAccessible(true);
        for (String kind : new String[] {"Source", "Checkpoint"}) {
            Class<?> config = Class.forName(MIRROR + "Mirror" + kind + "TaskConfig");
            Constructor<?> made = Class.forName(MIRROR + "Mirror" + kind + "Metrics")
                .getDeclaredConstructor(PluginMetrics.class, config);
            made.setAccessible(true);
            Object figures = made.newInstance(ofTask.invoke(metrics, new ConnectorTaskId("Mirror" + kind + "Connector", 0)),
                config.getConstructor(Map.class).newInstance(TASK));
            if (kind.equals("Checkpoint")) {
                Method latency = figures.getClass()
                    .getDeclaredMethod("checkpointLatency", TopicPartition.class, String.class, long.class);
                latency.setAccessible(true);
                latency.invoke(figures, new TopicPartition("a.orders", 0), "billing", 5L);
            }
        }
        metrics.metrics().metrics().keySet().stream().filter(name -> name.tags().containsKey("source")).forEach(name ->
            System.out.println(name.group() + " " + name.name() + " " + name.tags().toString().replace(" ", "")));
        System.exit(0);
    }
}
"""
"""Prints `group name {tag=value,...}` of every figure that MirrorMaker has by
metric.names.formats=new.
"""


def test_so_is_every_figure_by_its_new_name(kafka_programs: KafkaPrograms, tmp_path: Path) -> None:
    program = tmp_path / "NewFigures.java"
    program.write_text(NEW_FIGURES, encoding="utf-8")
    theirs = {}
    for line in kafka_programs.run_source(program).decode().splitlines():
        if line.startswith("plugins "):
            group, name, tags = line.split()
            labels = dict(tag.split("=") for tag in tags.strip("{}").split(","))
            theirs[f"kafka_connect_{group}_{name.replace('-', '_')}"] = labels
    values = {"source": "a", "target": "b", "topic": "a.orders", "partition": "0", "group": "billing"}
    legacy = []
    for line in METRICS_PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `kafka_connect_mirror_"):
            _, name, _, reported, *_ = (cell.strip() for cell in line.split("|"))
            labels = {label: values[label] for label in reported.replace("`", "").replace(" ", "").split(",")}
            legacy.append(UnknownMetricFamily(name.strip("`"), "Text.", labels=list(labels)))
            legacy[-1].add_metric(list(labels.values()), 1)
    ours = {sample.name: sample.labels for family in in_formats(legacy, [NamesFormat.NEW]) for sample in family.samples}
    assert ours == theirs
    assert len(theirs) == 16


def test_every_figure_of_mirror_maker_is_shown_by_the_name_of_the_jmx_exporter_s_usual_rules(
    kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    program = tmp_path / "MirrorMakerFigures.java"
    program.write_text(FIGURES, encoding="utf-8")
    theirs = {}
    for line in kafka_programs.run_source(program).decode().splitlines():
        group, name, tags = line.split()
        theirs[f"kafka_connect_mirror_{group.lower()}_{name.replace('-', '_')}"] = set(tags.split(","))
    ours = {}
    for line in METRICS_PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `kafka_connect_mirror_"):
            _, name, _, labels, *_ = (cell.strip() for cell in line.split("|"))
            ours[name.strip("`")] = set(labels.replace("`", "").replace(" ", "").split(","))
    assert ours == theirs
    assert len(theirs) == 16


def test_kafka_s_own_classes_know_no_other_keys(
    kafka_programs: KafkaPrograms, tmp_path: Path, is_golden_rewrite: bool
) -> None:
    program = tmp_path / "MirrorMakerKeys.java"
    program.write_text(LIST_OF_KEYS, encoding="utf-8")
    reported = kafka_programs.run_source(program).decode()
    found = f"# Apache Kafka {jar_sets.KAFKA.version}\n{reported}"
    if is_golden_rewrite:
        KEYS.write_text(found, encoding="utf-8")
    assert found == KEYS.read_text(encoding="utf-8")
