// What the adapters in JavaScript share: the roles of peer.py.
import { openSync, writeSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const BODY_BYTES = 165;
const BATCH = 500;
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

const flows = process.env.PEER_FLOWS === "1";
const removeOnComplete = flows ? { age: 3600 } : true; // a result is in its job
const options = (dueMs) =>
  dueMs === null ? { removeOnComplete } : { removeOnComplete, delay: Math.max(0, Math.ceil(dueMs - nowMs())) };

// `queue` is BullMQ's, or has its methods. `more`: has `flow(jobs, last)` and `result(job)`, or is null.
function ordersOf(queue, more) {
  const add = (data, dueMs) => queue.add("job", data, options(dueMs));
  return {
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
      const made = jobs({ first, count: count + 1 });
      const all = made.map(([data]) => ({ name: "job", queueName: "t", data, opts: options(null) }));
      const began = performance.now();
      await more.flow(all.slice(0, -1), all[count]);
      return began;
    },
    results: async (order) => {
      const made = jobs(order);
      const began = performance.now();
      for (const [data] of made) await more.result(await add(data, null));
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
}

async function produce(queue, name, more) {
  const version = JSON.parse(readFileSync(`${process.env.PEER_MODULES}/node_modules/${name}/package.json`)).version;
  const orders = ordersOf(queue, more);
  const why = more ? "" : "not measured";
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    if (order.do === "about") {
      console.log(JSON.stringify({ version, no_bulk: "", no_flow: why, no_result: why }));
    } else {
      const began = await orders[order.do](order);
      console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
    }
  }
  await queue.close();
}

async function work(makeWorker, log, workS, crash) {
  const file = openSync(log, "a");
  const handle = async (job) => {
    if (Number(workS)) await sleep(Number(workS) * 1000);
    writeSync(file, `${job.data.n} ${job.data.due} ${ns(nowMs())}\n`);
    return job.data.n;
  };
  const worker = makeWorker(handle, crash === "1");
  await worker.waitUntilReady();
  console.log("ready");
}

// `makeQueue(url)` makes a Queue, `makeWorker(url, handle, crash)` a Worker of the package `name`, `makeMore(url)` what
// knows of flows and results.
export async function run(name, makeQueue, makeWorker, makeMore = null) {
  const [role, text, log, workS, crash] = process.argv.slice(2);
  const url = new URL(text);
  if (role === "produce") await produce(makeQueue(url), name, flows && makeMore ? await makeMore(url) : null);
  else await work((handle, inCrash) => makeWorker(url, handle, inCrash), log, workS, crash);
}
