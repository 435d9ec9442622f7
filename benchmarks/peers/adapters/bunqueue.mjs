// bunqueue, on Bun: its server in memory, and its client over TCP.
import { createRequire } from "node:module";
import { run } from "./peer.mjs";

const { FlowProducer, Queue, Worker } = createRequire(process.env.PEER_MODULES + "/")("bunqueue/client");
const connection = (url) => ({ host: url.hostname, port: Number(url.port) });

const makeWorker = (url, handle, crash) => {
  const inCrash = crash ? { concurrency: 20, lockDuration: 2000, heartbeatInterval: 1000 } : { concurrency: 100 };
  return new Worker("t", handle, { connection: connection(url), ...inCrash });
};

const makeMore = async (url) => {
  const producer = new FlowProducer({ connection: connection(url) });
  return {
    flow: (children, last) => producer.add({ ...last, children }),
    result: (job) => job.waitUntilFinished(null, 30000),
  };
};

await run("bunqueue", (url) => new Queue("t", { connection: connection(url) }), makeWorker, makeMore);
