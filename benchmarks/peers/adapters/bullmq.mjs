// BullMQ, on Node.js. The same roles as in peer.py.
import { openSync, writeSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.env.PEER_MODULES + "/");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const BODY_BYTES = 165;
const BATCH = 500;
const [role, url, log, workS, crash] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Date.now() cuts milliseconds off. Seen often enough, it tells how far the finer clock is from the system's.
const distances = Array.from({ length: 20000 }, () => Date.now() - performance.now());
const distance = distances.reduce((most, one) => Math.max(most, one));
const nowMs = () => distance + performance.now();
const ns = (ms) => `${Math.floor(ms * 1000)}000`; // more digits than a number has

function body(n, dueMs) {
  const plain = `{"n":${n},"due":"${ns(dueMs)}","pad":""}`;
  return { n, due: ns(dueMs), pad: "x".repeat(BODY_BYTES - plain.length) };
}

function jobs({ first, count, due_ns: dueNs = 0, between_s: betweenS = null }) {
  const now = Math.floor(nowMs());
  const [least, most] = (betweenS || []).map((s) => Math.round(s * 1000));
  return Array.from({ length: count }, (_, i) => {
    const spread = betweenS && now + least + (((first + i) * 7919) % (most - least));
    const due = spread || (dueNs ? Math.round(dueNs / 1e6) : null);
    return [body(first + i, due || now), due];
  });
}

// Whoever waits for a result finds it in the job.
const removeOnComplete = process.env.PEER_FLOWS === "1" ? { age: 3600 } : true;
const options = (dueMs) =>
  dueMs === null
    ? { removeOnComplete }
    : { removeOnComplete, delay: Math.max(0, Math.ceil(dueMs - nowMs())) };

const queue = role === "produce" ? new Queue("t", { connection }) : null;
const flows = role === "produce" && process.env.PEER_FLOWS === "1" ? new FlowProducer({ connection }) : null;
const events = flows && new QueueEvents("t", { connection });
const add = (data, dueMs) => queue.add("job", data, options(dueMs));
const orders = {
  one: async (order) => {
    const made = jobs(order);
    const began = performance.now();
    for (const [data, dueMs] of made) await add(data, dueMs);
    return began;
  },
  bulk: async (order) => {
    const made = jobs(order);
    const began = performance.now();
    for (let i = 0; i < made.length; i += BATCH) {
      await queue.addBulk(
        made.slice(i, i + BATCH).map(([data, dueMs]) => ({ name: "job", data, opts: options(dueMs) })),
      );
    }
    return began;
  },
  flow: async ({ first, count }) => {
    const made = jobs({ first, count: count + 1 }).map(([data]) => ({ name: "job", queueName: "t", data, opts: options(null) }));
    const began = performance.now();
    const last = made.pop();
    await flows.add({ ...last, children: made });
    return began;
  },
  results: async (order) => {
    const made = jobs(order);
    await events.waitUntilReady();
    const began = performance.now();
    for (const [data] of made) await (await add(data, null)).waitUntilFinished(events, 30000);
    return began;
  },
  trickle: async ({ first, count, between_s: [least, most], per_second: perSecond }) => {
    const began = performance.now();
    for (let i = 0; i < count; i++) {
      const wait = began + (i * 1000) / perSecond - performance.now();
      if (wait > 0) await sleep(wait);
      const due = Math.floor(nowMs()) + Math.round((least + Math.random() * (most - least)) * 1000);
      await add(body(first + i, due), due);
    }
    return began;
  },
};

async function produce() {
  const version = JSON.parse(readFileSync(process.env.PEER_MODULES + "/node_modules/bullmq/package.json")).version;
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    if (order.do === "about") {
      console.log(JSON.stringify({ version, no_bulk: "", no_flow: "", no_result: "" }));
    } else {
      const began = await orders[order.do](order);
      console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
    }
  }
  await queue.close();
}

async function work() {
  const file = openSync(log, "a");
  const handle = async (job) => {
    if (Number(workS)) await sleep(Number(workS) * 1000);
    writeSync(file, `${job.data.n} ${job.data.due} ${ns(nowMs())}\n`);
    return job.data.n;
  };
  const inCrash = crash === "1" ? { concurrency: 20, lockDuration: 2000, stalledInterval: 1000 } : { concurrency: 100 };
  const worker = new Worker("t", handle, { connection, ...inCrash });
  await worker.waitUntilReady();
  console.log("ready");
}

await (role === "produce" ? produce() : work());
