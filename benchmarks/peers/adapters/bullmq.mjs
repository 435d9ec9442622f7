// BullMQ, on Node.js. The same roles as in peer.py.
import { openSync, writeSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.env.PEER_MODULES + "/");
const { Queue, Worker } = require("bullmq");
const BODY_BYTES = 165;
const [role, url, log, workS, crash] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const nowNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));

function body(n, due) {
  const plain = `{"n":${n},"due":${due},"pad":""}`;
  return { n, due: String(due), pad: "x".repeat(BODY_BYTES - plain.length - 2) }; // 2: the quotes around due
}

const seconds = (delayS, dueNs) => (dueNs ? Math.max(0, (dueNs - Number(nowNs())) / 1e9) : delayS);
const options = (delayS) => ({ delay: Math.ceil(delayS * 1000), removeOnComplete: true });

async function produce() {
  const queue = new Queue("t", { connection });
  const version = JSON.parse(readFileSync(process.env.PEER_MODULES + "/node_modules/bullmq/package.json")).version;
  const add = (number, due, delayS) => queue.add("job", body(number, due), options(delayS));
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    if (order.do === "about") {
      console.log(JSON.stringify({ version, bulk: true }));
      continue;
    }
    const { first, count, delay_s: delayS, due_ns: dueNs } = order;
    const began = nowNs();
    const due = dueNs ? BigInt(dueNs) : began + BigInt(Math.round(delayS * 1e9));
    if (order.do === "trickle") {
      for (let i = 0; i < count; i++) {
        const wait = Number(began) / 1e6 + (i * 1000) / order.per_second - Number(nowNs()) / 1e6;
        if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
        await add(first + i, nowNs() + BigInt(Math.round(delayS * 1e9)), delayS);
      }
    } else if (order.do === "bulk") {
      for (let start = first; start < first + count; start += 500) {
        const jobs = [];
        for (let i = start; i < Math.min(start + 500, first + count); i++) {
          jobs.push({ name: "job", data: body(i, due), opts: options(seconds(delayS, dueNs)) });
        }
        await queue.addBulk(jobs);
      }
    } else {
      for (let i = first; i < first + count; i++) await add(i, due, seconds(delayS, dueNs));
    }
    console.log(JSON.stringify({ seconds: Number(nowNs() - began) / 1e9 }));
  }
  await queue.close();
}

async function work() {
  const file = openSync(log, "a");
  const handle = async (job) => {
    if (Number(workS)) await new Promise((resolve) => setTimeout(resolve, Number(workS) * 1000));
    writeSync(file, `${job.data.n} ${job.data.due} ${nowNs()}\n`);
  };
  const inCrash = crash === "1" ? { concurrency: 20, lockDuration: 2000, stalledInterval: 1000 } : { concurrency: 100 };
  const worker = new Worker("t", handle, { connection, ...inCrash });
  await worker.waitUntilReady();
  console.log("ready");
}

await (role === "produce" ? produce() : work());
