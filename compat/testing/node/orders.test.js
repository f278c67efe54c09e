const assert = require("node:assert");
const { after, before, beforeEach, test } = require("node:test");
const { Kafka, logLevel } = require("kafkajs");
const { Kwire } = require("./kwire");

let kwire;
before(async () => {
  kwire = await Kwire.start();
});
after(() => kwire.stop());
beforeEach(() => kwire.ask("POST", "/v1/reset"));

async function produce(topic, value) {
  const retry = { initialRetryTime: 20, retries: 5 };
  const kafka = new Kafka({ brokers: kwire.brokers, logLevel: logLevel.NOTHING, retry });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  try {
    await producer.send({ topic, messages: [{ value }] });
  } finally {
    await producer.disconnect();
  }
}

test("a lost answer makes no duplicate", async () => {
  await kwire.ask("POST", "/v1/topics", { name: "orders" });
  const rule = { api: "Produce", nth: 1, close: true, after_apply: true };
  const [{ id }] = (await kwire.ask("POST", "/v1/faults", rule)).faults;

  await produce("orders", "one pizza");

  assert.strictEqual((await kwire.ask("GET", `/v1/faults/${id}`)).hits, 1);
  const { partitions } = await kwire.ask("GET", "/v1/topics/orders");
  assert.strictEqual(partitions[0].end_offset, 1);
});

test("records are gone after the retention time", async () => {
  await kwire.ask("POST", "/v1/topics", { name: "news", configs: { "retention.ms": "604800000" } });
  await produce("news", "old news");

  await kwire.ask("POST", "/v1/clock/advance", { duration: "8d" });

  const { partitions } = await kwire.ask("GET", "/v1/topics/news");
  assert.strictEqual(partitions[0].start_offset, 1);
});

test("a misspelled error is told the nearest one", async () => {
  await assert.rejects(kwire.ask("POST", "/v1/faults", { error: "NOT_LEADER" }), /NOT_LEADER_OR_FOLLOWER/);
});
