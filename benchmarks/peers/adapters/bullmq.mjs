// BullMQ, on Node.js.
import { createRequire } from "node:module";
import { run } from "./peer.mjs";

const { FlowProducer, Queue, QueueEvents, Worker } = createRequire(process.env.PEER_MODULES + "/")("bullmq");
const connection = (url) => ({ host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null });

const makeWorker = (url, handle, crash) => {
  const inCrash = crash ? { concurrency: 20, lockDuration: 2000, stalledInterval: 1000 } : { concurrency: 100 };
  return new Worker("t", handle, { connection: connection(url), ...inCrash });
};

const makeMore = async (url) => {
  const producer = new FlowProducer({ connection: connection(url) });
  const events = new QueueEvents("t", { connection: connection(url) });
  await events.waitUntilReady();
  return {
    flow: (children, last) => producer.add({ ...last, children }),
    result: (job) => job.waitUntilFinished(events, 30000),
  };
};

await run("bullmq", (url) => new Queue("t", { connection: connection(url) }), makeWorker, makeMore);
