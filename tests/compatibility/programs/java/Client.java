// What Java clients can do and Kafka's own tools do not show, as the compatibility matrix drives it: Client COMMAND BOOTSTRAP ...
//
//   by-id TOPIC                     describes and deletes a topic by its id, and describes it once more
//   match PATTERN GROUP COUNT       reads so many records of all topics that a KIP-848 pattern matches; prints "topic value"
//   commit TOPIC GROUP OFFSET       commits an offset of partition 0 without joining, and reads it back (group.protocol=consumer)
//   alternate TOPIC OTHER ID COUNT  so many transactions over all partitions of both topics, every second one aborted
//   copy-values COUNT TOPIC ...     writes so many plain values to partition 0 of each topic, and prints "topic value" of each that it reads there
//   operations TOPIC GROUP          prints what may be done: "cluster ...", "topic ...", "group ..."

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    private static final long WITHIN_MS = 60_000;

    public static void main(String[] given) throws Exception {
        String servers = given[1];
        switch (given[0]) {
            case "by-id" -> byId(servers, given[2]);
            case "match" -> match(servers, given[2], given[3], Integer.parseInt(given[4]));
            case "commit" -> commit(servers, given[2], given[3], Long.parseLong(given[4]));
            case "alternate" -> alternate(servers, given[2], given[3], given[4], Integer.parseInt(given[5]));
            case "copy-values" -> copyValues(servers, Integer.parseInt(given[2]), List.of(given).subList(3, given.length));
            case "operations" -> operations(servers, given[2], given[3]);
            default -> throw new IllegalArgumentException(given[0]);
        }
    }

    private static void byId(String servers, String topic) throws Exception {
        try (Admin admin = Admin.create(settings(servers))) {
            Uuid id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            TopicCollection.TopicIdCollection ids = TopicCollection.ofTopicIds(List.of(id));
            System.out.println(admin.describeTopics(ids).allTopicIds().get().get(id).name());
            admin.deleteTopics(ids).all().get();
            try {
                System.out.println(admin.describeTopics(ids).allTopicIds().get().get(id).name());
            } catch (ExecutionException failure) {
                if (!(failure.getCause() instanceof UnknownTopicIdException)) {
                    throw failure;
                }
                System.out.println("unknown");
            }
        }
    }

    private static void match(String servers, String pattern, String group, int count) {
        try (KafkaConsumer<String, String> consumer = consumer(servers, group)) {
            consumer.subscribe(new SubscriptionPattern(pattern));
            print(consumer, count);
        }
    }

    private static void print(KafkaConsumer<String, String> consumer, int count) {
        long end = System.currentTimeMillis() + WITHIN_MS;
        for (int seen = 0; seen < count; ) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("only " + seen + " records of " + count + " have come");
            }
            for (ConsumerRecord<String, String> found : consumer.poll(Duration.ofMillis(500))) {
                System.out.println(found.topic() + " " + found.value());
                seen++;
            }
        }
    }

    private static void commit(String servers, String topic, String group, long offset) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(servers, group)) {
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
        }
        try (KafkaConsumer<String, String> consumer = consumer(servers, group)) {
            consumer.assign(List.of(partition));
            System.out.println(consumer.committed(Set.of(partition)).get(partition).offset());
        }
    }

    private static void alternate(String servers, String topic, String other, String id, int count) {
        Properties settings = producerSettings(servers);
        settings.put("transactional.id", id);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int number = 0; number < count; number++) {
                producer.beginTransaction();
                for (String target : List.of(topic, other)) {
                    for (PartitionInfo partition : producer.partitionsFor(target)) {
                        producer.send(new ProducerRecord<>(target, partition.partition(), null, "value-" + number));
                    }
                }
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();  // an abort drops what has not been sent
                    producer.abortTransaction();
                }
            }
        }
    }

    private static void copyValues(String servers, int count, List<String> topics) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerSettings(servers));
                KafkaConsumer<String, String> consumer = consumer(servers, "unused")) {
            for (String topic : topics) {
                for (int number = 0; number < count; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, "value-" + number));
                }
                producer.flush();
                consumer.assign(List.of(new TopicPartition(topic, 0)));
                consumer.seekToBeginning(consumer.assignment());
                print(consumer, count);
            }
        }
    }

    private static void operations(String servers, String topic, String group) throws Exception {
        try (Admin admin = Admin.create(settings(servers))) {
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            print("cluster", cluster.authorizedOperations().get());
            var topics = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            var described = admin.describeTopics(List.of(topic), topics).allTopicNames().get().get(topic);
            print("topic", described.authorizedOperations());
            var groups = new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true);
            print("group", admin.describeConsumerGroups(List.of(group), groups).all().get().get(group).authorizedOperations());
        }
    }

    private static void print(String of, Set<AclOperation> operations) {
        String names = operations == null ? "none told" : operations.stream().map(Enum::name).sorted().collect(Collectors.joining(" "));
        System.out.println(of + " " + names);
    }

    private static KafkaConsumer<String, String> consumer(String servers, String group) {
        Properties settings = settings(servers);
        settings.put("group.id", group);
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        return new KafkaConsumer<>(settings);
    }

    private static Properties producerSettings(String servers) {
        Properties settings = settings(servers);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return settings;
    }

    private static Properties settings(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }
}
