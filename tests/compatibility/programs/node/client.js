// KafkaJS as the compatibility matrix drives it; tests/compatibility/written_programs.py says what each command reads and prints.
"use strict";

const { readFileSync } = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const WITHIN_MS = 60000;

function lines() {
  return readFileSync(0, "utf8").split("\n").filter((line) => line !== "");
}

function records(values) {
  return values.map((value) => ({ partition: 0, value }));
}

function print({ partition, message }) {
  console.log(partition, message.offset, message.value.toString());
}

async function produce(kafka, topic) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await producer.send({ topic, acks: -1, messages: records(lines()) });
  await producer.disconnect();
}

// Every consumer of this library is a member of a group. Hands over `count` records, then stops and leaves.
async function take(kafka, topic, group, count, handle, options = {}) {
  const consumer = kafka.consumer({ groupId: group, ...options });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let left = count;
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer
      .run({
        autoCommit: false,
        eachMessage: async (read) => {
          if (left <= 0) return;
          await handle(consumer, read);
          left -= 1;
          if (left === 0) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
}

async function commit(consumer, { topic, partition, message }) {
  await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }]);
}

async function consume(kafka, topic, isolation, count) {
  const readUncommitted = isolation !== "read_committed";
  await take(kafka, topic, `reader-${process.pid}-${Date.now()}`, count, async (_, read) => print(read), { readUncommitted });
}

async function join(kafka, topic, group, count) {
  const handle = async (consumer, read) => {
    print(read);
    await commit(consumer, read);
  };
  await take(kafka, topic, group, count, handle);
}

async function transactional(kafka, transactionalId) {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  return producer;
}

async function transact(kafka, topic, id) {
  const producer = await transactional(kafka, id);
  let values = [];
  for (const line of lines()) {
    if (line !== "!commit" && line !== "!abort") {
      values.push(line);
      continue;
    }
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: records(values) });
    await (line === "!commit" ? transaction.commit() : transaction.abort());
    values = [];
  }
  await producer.disconnect();
}

async function copy(kafka, source, target, group, id, count) {
  const producer = await transactional(kafka, id);
  const handle = async (_, { topic, partition, message }) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: target, messages: records([message.value]) });
    const offset = (BigInt(message.offset) + 1n).toString();
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition, offset }] }] });
    await transaction.commit();
  };
  await take(kafka, source, group, count, handle);
  await producer.disconnect();
}

const TOPIC_RESOURCE = 2;

async function administer(kafka, command, topic, given) {
  const admin = kafka.admin();
  await admin.connect();
  const configNames = ["retention.ms"];
  switch (command) {
    case "create-topic": {
      const configEntries = [{ name: "retention.ms", value: given[1] }];
      const wanted = { topic, numPartitions: Number(given[0]), replicationFactor: -1, configEntries };
      await admin.createTopics({ topics: [wanted] });
      break;
    }
    case "describe-topic": {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      const resources = [{ type: TOPIC_RESOURCE, name: topic, configNames }];
      const described = await admin.describeConfigs({ resources, includeSynonyms: false });
      const [retention] = described.resources[0].configEntries;
      console.log(topics[0].partitions.length, topics[0].partitions[0].replicas.length, retention.configValue);
      break;
    }
    case "set-retention": {
      const configEntries = [{ name: "retention.ms", value: given[0] }];
      await admin.alterConfigs({ validateOnly: false, resources: [{ type: TOPIC_RESOURCE, name: topic, configEntries }] });
      break;
    }
    case "add-partitions":
      await admin.createPartitions({ topicPartitions: [{ topic, count: Number(given[0]) }] });
      break;
    case "list-groups":
      for (const { groupId } of (await admin.listGroups()).groups) console.log(groupId);
      break;
    case "delete-topic":
      await admin.deleteTopics({ topics: [topic] });
      break;
    default:
      throw new Error(`no command ${command}`);
  }
  await admin.disconnect();
}

// How it connects: KAFKA_SECURITY as tests/compatibility/credentials.py writes it, or plaintext.
function security() {
  const text = process.env.KAFKA_SECURITY;
  if (!text) return {};
  const { ca, identity, mechanism, user, password, token } = JSON.parse(text);
  const ssl = { ca: [readFileSync(ca, "utf8")] };
  if (identity) ssl.key = ssl.cert = readFileSync(identity, "utf8");
  const login = { mechanism: (mechanism || "").toLowerCase(), username: user, password };
  if (mechanism === "OAUTHBEARER") login.oauthBearerProvider = async () => ({ value: token });
  return { ssl, sasl: mechanism ? login : undefined, retry: { retries: 2 } };
}

async function main() {
  const [command, bootstrap, ...given] = process.argv.slice(2);
  const kafka = new Kafka({
    clientId: "compatibility",
    brokers: bootstrap.split(","),
    logLevel: logLevel.NOTHING,
    ...security(),
  });
  const commands = { produce, consume, join, transact, copy };
  const numbered = given.map((text, index) => (index === given.length - 1 && /^\d+$/.test(text) ? Number(text) : text));
  if (command in commands) await commands[command](kafka, ...numbered);
  else await administer(kafka, command, given[0], given.slice(1));
}

setTimeout(() => {
  console.error(`not done within ${WITHIN_MS} ms`);
  process.exit(1);
}, WITHIN_MS).unref();
main().catch((error) => {
  // An admin request for several topics reports the reason of each in an inner error.
  console.error([error, ...(error.errors ?? [])].map(String).join("; "));
  process.exit(1);
});
