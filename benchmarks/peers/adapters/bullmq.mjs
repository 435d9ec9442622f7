// BullMQ, on Node.js.
import { createRequire } from "node:module";
import { run } from "./peer.mjs";

const { Queue, Worker } = createRequire(process.env.PEER_MODULES + "/")("bullmq");
const connection = (url) => ({ host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null });

const makeWorker = (url, handle, crash) => {
  const inCrash = crash ? { concurrency: 20, lockDuration: 2000, stalledInterval: 1000 } : { concurrency: 100 };
  return new Worker("t", handle, { connection: connection(url), ...inCrash });
};

await run("bullmq", (url) => new Queue("t", { connection: connection(url) }), makeWorker);
