"""Names that people have in their files and on their dashboards, as Apache Kafka's own classes of MirrorMaker 2 tell them.

Of keys the list that `tests/golden/test_mirror_maker_keys.py` goes by; of figures those in `docs/metrics.md`, which is made from what we
show.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import jar_sets
from tests.support.java_clients import KafkaPrograms

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
"""Prints `scope key`: of the file and the workers below it, of connectors and their filters and policies, of each kind of client."""


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
    told = kafka_programs.run_source(program).decode()
    found = f"# Apache Kafka {jar_sets.KAFKA.version}\n{told}"
    if is_golden_rewrite:
        KEYS.write_text(found, encoding="utf-8")
    assert found == KEYS.read_text(encoding="utf-8")
