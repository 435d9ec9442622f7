/** Against a live server: STREAMDQ_TEST_URL, with the tokens STREAMDQ_TEST_ADMIN and STREAMDQ_TEST_PRODUCER. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import {
  Bury,
  Forbidden,
  InvalidInput,
  JobAborted,
  JobBusy,
  type JobEvent,
  JobExists,
  NoSuchJob,
  type NewJob,
  ProblemError,
  Queue,
  Retry,
  ServerUnreachable,
  Snooze,
  StaleClaim,
  TtrPassed,
  Unauthenticated,
  UnknownTopic,
  Worker,
} from "streamdq";

type Order = { order_id: number };
type Topics = Record<string, Order>;

function setting(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set`);
  return value;
}

const url = setting("STREAMDQ_TEST_URL");
const token = setting("STREAMDQ_TEST_ADMIN");
const queue = new Queue<Topics>({ url, token });
const quiet = { warn: () => {} };
let made = 0;
const topic = () => `orders/${process.pid}-${made++}`;

/** A server in front of the real one that treats each request as `how` says. */
type How = (forward: () => Promise<Response>, response: ServerResponse, count: number) => Promise<void>;
const proxies: Server[] = [];
async function proxied(how: How): Promise<string> {
  let count = 0;
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      const headers = { authorization: `Bearer ${token}`, "content-type": request.headers["content-type"] ?? "" };
      const body = parts.length > 0 ? { body: Buffer.concat(parts) } : {};
      const forward = () => fetch(url + request.url, { method: request.method ?? "GET", headers, ...body });
      void how(forward, response, ++count);
    });
  });
  proxies.push(server.listen(0, "127.0.0.1"));
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
after(() => {
  for (const server of proxies) server.close().closeAllConnections();
});

async function pass(answer: Response, response: ServerResponse): Promise<void> {
  const headers = { "content-type": answer.headers.get("content-type") ?? "text/plain" };
  response.writeHead(answer.status, headers).end(Buffer.from(await answer.arrayBuffer()));
}

/** The answer to the first request is lost, after it was carried out. */
const loseFirst: How = async (forward, response, count) => {
  const answer = await forward();
  if (count === 1) response.destroy();
  else await pass(answer, response);
};

test("a job is enqueued under its id, read, rescheduled and cancelled", async () => {
  const name = topic();
  const at = new Date(Date.now() + 3_600_000);
  const job = await queue.enqueue(name, { order_id: 42 }, { id: "order/42 ü", at, ttr: "30s", retry: "15s 3m" });
  assert.equal(job.id, "order/42 ü");
  assert.equal(job.due_ms, at.getTime());
  assert.equal(job.ttr_ms, 30_000);
  const found = await queue.get(name, job.id);
  assert.equal(found?.body.order_id, 42);
  assert.equal(found.state, "delayed");
  const later = await queue.reschedule(name, job.id, { delay: "2h" });
  assert.ok((later.due_ms ?? 0) > at.getTime());
  await queue.cancel(name, job.id);
  assert.equal(await queue.get(name, job.id), null);
  await assert.rejects(queue.cancel(name, job.id), NoSuchJob);
});

test("a job is aborted while it waits and while it runs", async () => {
  const name = topic();
  await queue.enqueue(name, { order_id: 1 }, { id: "a", delay: "1h" });
  assert.equal(await queue.abort(name, "a"), "cancelled");
  await queue.enqueue(name, { order_id: 1 }, { id: "b" });
  const claim = await queue.take(name, { timeout: "10s" });
  assert.ok(claim);
  assert.equal(await queue.abort(name, "b"), "aborting");
  await assert.rejects(queue.touch(claim, "5m"), JobAborted);
  await assert.rejects(queue.finish(claim), JobAborted);
  await assert.rejects(queue.abort(name, "b"), NoSuchJob);
});

test("a topic is followed, and an event's position goes on", async () => {
  const name = topic();
  for (const id of ["a", "b"]) {
    await queue.enqueue(name, { order_id: 1 }, { id, delay: "1h" });
    await queue.cancel(name, id);
  }
  const stop = new AbortController();
  const seen: JobEvent[] = [];
  await assert.rejects(async () => {
    for await (const event of queue.events(name, { since: "-1h", signal: stop.signal })) {
      seen.push(event);
      if (seen.length === 2) {
        await queue.enqueue(name, { order_id: 1 }, { id: "c", delay: "1h" });
        await queue.cancel(name, "c");
      }
      if (seen.length === 3) stop.abort(new Error("enough"));
    }
  }, /enough/);
  assert.deepEqual(seen.map(({ event, id }) => `${event} ${id}`), ["cancelled a", "cancelled b", "cancelled c"]);
  for await (const { id } of queue.events(name, { since: seen[0]!.position })) {
    assert.equal(id, "b");
    break;
  }
  await assert.rejects(queue.events(topic()).next(), UnknownTopic);
});

test("a taken id is an error, or what on_conflict says", async () => {
  const name = topic();
  const job = await queue.enqueue(name, { order_id: 1 }, { id: "a", delay: "1h" });
  const again = await queue.enqueue(name, { order_id: 1 }, { id: "a", delay: "1h" });
  assert.deepEqual([again.created_ms, again.due_ms], [job.created_ms, job.due_ms]);
  const other = queue.enqueue(name, { order_id: 2 }, { id: "a", delay: "1h" });
  await assert.rejects(other, (error: unknown) => error instanceof JobExists && error.code === "job-exists");
  assert.equal((await queue.enqueue(name, { order_id: 2 }, { id: "a", on_conflict: "keep" })).body.order_id, 1);
  assert.equal((await queue.enqueue(name, { order_id: 2 }, { id: "a", on_conflict: "replace" })).body.order_id, 2);
});

test("many jobs are enqueued, more than go into one request", async () => {
  const name = topic();
  await queue.enqueue(name, { order_id: 0 }, { id: "n5001", delay: "1h" });
  async function* jobs(): AsyncGenerator<NewJob<Order>> {
    for (let i = 1; i <= 6000; i++) yield { body: { order_id: i }, id: `n${i}`, delay: "1h" };
    yield { body: { order_id: 6001 }, delay: "soon" };
  }
  const result = await queue.enqueueMany(name, jobs());
  assert.deepEqual([result.lines, result.created, result.existing, result.invalid], [6001, 5999, 1, 1]);
  assert.deepEqual(result.problems.map((problem) => [problem.line, problem.problem]), [
    [5001, "job-exists"],
    [6001, "invalid-input"],
  ]);
  assert.equal((await queue.stats(name)).delayed, 6000);
  assert.deepEqual((await queue.enqueueMany(name, [])).lines, 0);
});

test("claims end in each way", async () => {
  const name = topic();
  await queue.configure(name, { retry: "none", ttr: "30s" });
  const ways = ["finish", "fail", "snooze", "bury", "release"];
  for (const id of ways) {
    await queue.enqueue(name, { order_id: 1 }, { id });
    const claim = await queue.take(name, { timeout: "20s" });
    assert.ok(claim);
    assert.deepEqual([claim.job.id, claim.job.state, claim.ttr_ms], [id, "running", 30_000]);
    await assert.rejects(queue.cancel(name, id), JobBusy);
    await queue.touch(claim, "5m");
    if (id === "finish") await queue.finish(claim);
    if (id === "fail") await queue.fail(claim, "no answer", { traceback: "at shop.ts:7" });
    if (id === "snooze") await queue.snooze(claim, "1h", "not now");
    if (id === "bury") await queue.bury(claim.claim, "no such order");
    if (id === "release") await queue.release(claim);
    await assert.rejects(queue.touch(claim), StaleClaim);
  }
  const states = await Promise.all(ways.map(async (id) => (await queue.get(name, id))?.state ?? "gone"));
  assert.deepEqual(states, ["gone", "dead", "delayed", "dead", "ready"]);
  const { jobs, next } = await queue.dead(name);
  assert.deepEqual(jobs.map((job) => job.groups["default"]?.error), ["no answer", "no such order"]);
  assert.equal(next, null);
  const past = await queue.history(name, "fail");
  assert.deepEqual(past?.events.map((one) => [one.event, one.message, one.traceback]), [["dead", "no answer", "at shop.ts:7"]]);
  assert.equal(await queue.history(name, "never was"), null);
  assert.deepEqual([await queue.kick(name, { ids: [] }), await queue.purge(name, { ids: [] })], [0, 0]);
  assert.equal(await queue.kick(name, { ids: ["fail", "snooze"] }), 1);
  assert.equal(await queue.purge(name, { all: true }), 1);
  const again = await queue.take(name, { timeout: "20s" });
  assert.ok(again);
  await assert.rejects(queue.take(topic()), UnknownTopic);
});

test("what the server refuses has a class, its code and its details", async () => {
  const bad = queue.enqueue(topic(), { order_id: 1 }, { delay: "soon" });
  await assert.rejects(bad, (error: unknown) => {
    assert.ok(error instanceof InvalidInput && error instanceof ProblemError);
    assert.deepEqual([error.name, error.code, error.status], ["InvalidInput", "invalid-input", 422]);
    assert.match(error.message, /soon/);
    return true;
  });
  await assert.rejects(new Queue({ url, token: "sdq_no" }).stats(), Unauthenticated);
  const producer = new Queue<Topics>({ url, token: async () => setting("STREAMDQ_TEST_PRODUCER") });
  assert.equal((await producer.enqueue("t", { order_id: 1 })).body.order_id, 1);
  await assert.rejects(producer.stats(), Forbidden);
});

test("every other operation of the API can be sent", async () => {
  const name = topic();
  await queue.enqueue(name, { order_id: 1 }, { delay: "1h" });
  const params = { query: { topic: name } };
  const audit = await queue.send((signal) => queue.http.GET("/v1/audit", { params, signal }), { repeatable: true });
  assert.equal(audit.balanced, true);
  assert.equal(audit.left, 1);
});

test("a job whose answer was lost is enqueued once, with or without an id of one's own", async () => {
  for (const options of [{}, { id: "mine" }]) {
    const name = topic();
    const told: Error[] = [];
    const lossy = new Queue<Topics>({ url: await proxied(loseFirst), onRetry: (error) => told.push(error) });
    const job = await lossy.enqueue(name, { order_id: 1 }, { ...options, delay: "1h" });
    assert.equal((await queue.stats(name)).delayed, 1);
    assert.equal((await queue.get(name, job.id))?.body.order_id, 1);
    assert.equal(told.length, 1);
    assert.ok(told[0] instanceof ServerUnreachable && !told[0].never_sent);
  }
});

test("many jobs whose answer was lost are enqueued once", async () => {
  const name = topic();
  const lossy = new Queue<Topics>({ url: await proxied(loseFirst) });
  const result = await lossy.enqueueMany(name, [{ body: { order_id: 1 }, delay: "1h" }, { body: { order_id: 2 }, delay: "1h" }]);
  assert.deepEqual([result.created, result.existing], [0, 2]);
  assert.equal((await queue.stats(name)).delayed, 2);
});

test("a claim whose end was not answered has ended once, and the caller is told so", async () => {
  const name = topic();
  await queue.enqueue(name, { order_id: 1 }, { id: "a" });
  const claim = await queue.take(name, { timeout: "20s" });
  assert.ok(claim);
  await new Queue({ url: await proxied(loseFirst) }).finish(claim);
  assert.equal(await queue.get(name, "a"), null);
});

test("what must not run twice is not repeated after a lost answer", async () => {
  const name = topic();
  await queue.configure(name, { retry: "none" });
  await queue.enqueue(name, { order_id: 1 }, { id: "a" });
  const claim = await queue.take(name, { timeout: "20s" });
  assert.ok(claim);
  await queue.bury(claim, "no");
  let asked = 0;
  const counting: How = async (forward, response, count) => {
    asked = count;
    await loseFirst(forward, response, count);
  };
  const lossy = new Queue<Topics>({ url: await proxied(counting) });
  await assert.rejects(lossy.kick(name, { ids: ["a"] }), ServerUnreachable);
  await assert.rejects(lossy.reschedule(name, "b", { delay: "1s" }), NoSuchJob);
  assert.equal(asked, 2);
  assert.equal((await queue.get(name, "a"))?.state, "ready");
});

test("a server that is busy is asked again when it says, whatever the request; one that refuses is not", async () => {
  let asked = 0;
  const busy: How = async (forward, response, count) => {
    asked = count;
    if (count > 1) return await pass(await forward(), response);
    const headers = { "content-type": "application/problem+json", "retry-after": "0" };
    response.writeHead(503, headers).end(JSON.stringify({ type: "urn:streamdq:problem:too-busy", status: 503 }));
  };
  const name = topic();
  await queue.configure(name, {});
  assert.equal(await new Queue({ url: await proxied(busy) }).purge(name, { all: true }), 0);
  assert.equal(asked, 2);
  const html: How = async (_, response, count) => {
    asked = count;
    response.writeHead(404, { "content-type": "text/html" }).end("<h1>Not here</h1>");
  };
  const elsewhere = new Queue({ url: await proxied(html) });
  await assert.rejects(elsewhere.stats(), (error: unknown) => error instanceof ProblemError && error.code === "http-404");
  assert.equal(asked, 1);
});

test("a request ends with its signal, after its time, and where nobody listens", async () => {
  const silent = await proxied(async () => {});
  const reason = new Error("enough");
  const control = new AbortController();
  setTimeout(() => control.abort(reason), 50);
  await assert.rejects(new Queue({ url: silent }).stats(undefined, { signal: control.signal }), reason);
  await assert.rejects(new Queue({ url: silent, timeout_ms: 50, retries: 1 }).stats(), ServerUnreachable);
  const gone = createServer().listen(0, "127.0.0.1");
  await once(gone, "listening");
  const { port } = gone.address() as AddressInfo;
  gone.close();
  const nobody = new Queue({ url: `http://127.0.0.1:${port}`, retries: 1 });
  await assert.rejects(nobody.purge("x", { all: true }), (error: unknown) => error instanceof ServerUnreachable && error.never_sent);
});

test("a worker ends each attempt as its handler says", async () => {
  const name = topic();
  await queue.configure(name, { retry: "0" });
  const warned: unknown[][] = [];
  const stop = new AbortController();
  const seen: string[] = [];
  const handlers: Record<string, (attempt: number) => unknown> = {
    done: () => "ignored",
    retried: (attempt) => {
      if (attempt < 3) throw new Retry(0, "once more");
    },
    failing: () => Promise.reject(new TypeError("no bank")),
    snoozed: () => {
      throw new Snooze("1h", "later");
    },
    buried: () => {
      throw new Bury("no such order");
    },
    odd: () => {
      throw Object.create(null);
    },
  };
  const worker = new Worker(queue, { concurrency: 2, log: { warn: (...told) => warned.push(told) } });
  worker.handle(name, async ({ job, body }) => {
    assert.equal(body.order_id, 1);
    seen.push(job.id);
    await handlers[job.id]?.(job.attempt);
  });
  const running = worker.run(stop.signal);
  for (const id of Object.keys(handlers)) await queue.enqueue(name, { order_id: 1 }, { id });
  const counts = async () => (await queue.stats(name)).topics[name]?.groups["default"];
  for (let last = await counts(); last?.done !== 2 || last.dead !== 3 || last.snoozed !== 1; last = await counts()) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  stop.abort();
  await running;
  const times = (id: string) => seen.filter((one) => one === id).length;
  assert.deepEqual(Object.keys(handlers).map(times), [1, 3, 2, 1, 1, 2]);
  const groups = async (id: string) => (await queue.get(name, id))?.groups["default"];
  assert.equal((await groups("failing"))?.error, "TypeError: no bank");
  assert.equal((await groups("failing"))?.reason, "exhausted");
  const [first] = (await queue.history(name, "failing"))?.events ?? [];
  assert.equal(first?.message, "TypeError: no bank");
  assert.match(first?.traceback ?? "", /^TypeError: no bank\n +at .*live\.test/);
  assert.equal((await groups("buried"))?.error, "no such order");
  assert.equal((await groups("odd"))?.error, "what was thrown is no Error");
  assert.equal((await groups("snoozed"))?.snoozed, 1);
  assert.equal(warned.length, 2 + 2 + 1 + 2);
  assert.ok(warned.every(([text]) => !String(text).includes("order_id")));
});

test("a handler has its TTR, and more with a touch", async () => {
  const name = topic();
  await queue.configure(name, { retry: "none" });
  await queue.enqueue(name, { order_id: 1 }, { id: "slow", ttr: 1 });
  await queue.enqueue(name, { order_id: 1 }, { id: "touched", ttr: 1 });
  const stop = new AbortController();
  const ended = new Map<string, unknown>();
  const worker = new Worker(queue, { concurrency: 2, log: quiet }).handle(name, async (attempt) => {
    if (attempt.job.id === "touched") await attempt.touch(30);
    const rest = attempt.job.id === "touched" ? AbortSignal.timeout(1500) : attempt.signal;
    if (!rest.aborted) await once(rest, "abort");
    ended.set(attempt.job.id, attempt.signal.reason);
    attempt.signal.throwIfAborted();
  });
  const running = worker.run(stop.signal);
  while ((await queue.stats(name)).topics[name]?.groups["default"]?.done !== 1 || ended.size < 2) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  stop.abort();
  await running;
  assert.ok(ended.get("slow") instanceof TtrPassed);
  assert.equal(ended.get("touched"), undefined);
  const { jobs } = await queue.dead(name);
  assert.deepEqual(jobs.map((job) => job.groups["default"]?.error), ["TtrPassed: TTR 1s passed"]);
});

test("a worker that keeps no errors keeps neither message nor stack", async () => {
  const name = topic();
  await queue.configure(name, { retry: "none" });
  await queue.enqueue(name, { order_id: 1 }, { id: "secret" });
  const stop = new AbortController();
  const worker = new Worker(queue, { keep_errors: false, concurrency: 1, log: quiet }).handle(name, () => {
    throw new TypeError("swordfish");
  });
  const running = worker.run(stop.signal);
  while ((await queue.stats(name)).topics[name]?.groups["default"]?.dead !== 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  stop.abort();
  await running;
  const [event] = (await queue.history(name, "secret"))?.events ?? [];
  assert.deepEqual([event?.error, event?.message, event?.traceback], ["TypeError", "TypeError: its message is not kept", null]);
});

test("a worker that stops lets handlers end, and hands back what does not", async () => {
  const name = topic();
  const started = new Set<string>();
  const stop = new AbortController();
  const worker = new Worker(queue, { concurrency: 2, grace_ms: 300, log: quiet }).handle(name, async ({ job }) => {
    started.add(job.id);
    if (job.id === "endless") await new Promise(() => {});
    await new Promise((resolve) => setTimeout(resolve, 100));
  });
  const running = worker.run(stop.signal);
  for (const id of ["endless", "brief"]) await queue.enqueue(name, { order_id: 1 }, { id });
  while (started.size < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  stop.abort();
  await running;
  assert.equal(await queue.get(name, "brief"), null);
  const job = await queue.get(name, "endless");
  assert.deepEqual([job?.state, job?.attempt], ["ready", 0]);
});

test("a worker goes on when the server comes back, and ends if it may not take jobs", async () => {
  const name = topic();
  const stop = new AbortController();
  const failing: How = async (forward, response, count) => {
    if (count <= 2) response.destroy();
    else await pass(await forward(), response);
  };
  const shaky = new Queue<Topics>({ url: await proxied(failing) });
  const warned: unknown[] = [];
  const log = { warn: (text: string) => warned.push(text) };
  const worker = new Worker(shaky, { concurrency: 1, log }).handle(name, () => stop.abort());
  await queue.enqueue(name, { order_id: 1 }, { id: "a" });
  await worker.run(stop.signal);
  assert.equal(await queue.get(name, "a"), null);
  assert.deepEqual(warned, ["streamdq: the worker gets no jobs, and tries again:"]);
  const producer = new Queue({ url, token: setting("STREAMDQ_TEST_PRODUCER") });
  await assert.rejects(new Worker(producer).handle(name, () => {}).run(new AbortController().signal), Forbidden);
});
