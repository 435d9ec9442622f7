/** How requests are sent, to a server that the test plays. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidInput, NoSuchFlow, Queue, RateLimited, Worker } from "streamdq";

const url = "http://streamdq.example";

function limited(seconds: number): Response {
  const problem = { type: "urn:streamdq:problem:rate-limited", title: "Too many requests", status: 429 };
  return Response.json(problem, { status: 429, headers: { "Retry-After": `${seconds}` } });
}

for (const [own, ofCall] of [
  [undefined, undefined],
  [60_000, undefined],
  [undefined, 60_000],
]) {
  test(`a Retry-After is not waited for beyond give_up_ms: ${own} of the queue, ${ofCall} of the call`, async () => {
    let sent = 0;
    const fetch = async () => (sent++, limited(86_400));
    const queue = new Queue({ url, fetch, ...(own !== undefined && { give_up_ms: own }) });
    const call = queue.take("t", ofCall === undefined ? {} : { give_up_ms: ofCall });
    await assert.rejects(call, (error) => error instanceof RateLimited && error.retry_after_ms === 86_400_000);
    assert.equal(sent, 1);
  });
}

test("a flow is read and cancelled by its name", async () => {
  const flow = { name: "a/b", state: "running", jobs: 0, stages: [] };
  const asked: string[] = [];
  const fetch = async ({ method, url }: Request) => {
    asked.push(`${method} ${url}`);
    const problem = { type: "urn:streamdq:problem:no-flow", title: "No such flow", status: 404 };
    return url.includes("none") ? Response.json(problem, { status: 404 }) : Response.json(flow);
  };
  const queue = new Queue({ url, fetch });
  assert.deepEqual(await queue.flow("a/b"), flow);
  assert.deepEqual(await queue.cancelFlow("a/b"), flow);
  assert.deepEqual(await queue.flow("a/b", { times: true }), flow);
  assert.equal(await queue.flow("none"), null);
  await assert.rejects(queue.cancelFlow("none"), NoSuchFlow);
  const of = (name: string) => `${url}/v1/flows/${name}`;
  assert.deepEqual(asked, [`GET ${of("a%2Fb")}`, `POST ${of("a%2Fb")}/cancel`, `GET ${of("a%2Fb")}?times=true`, `GET ${of("none")}`, `POST ${of("none")}/cancel`]);
});

test("a call that waits for a Retry-After ends with its signal", async () => {
  const stop = new AbortController();
  const queue = new Queue({ url, fetch: async () => limited(100), onRetry: () => queueMicrotask(() => stop.abort()) });
  await assert.rejects(queue.stats("t", { signal: stop.signal }), { name: "AbortError" });
});

async function warnings(during: () => Promise<unknown>): Promise<string[]> {
  const found: string[] = [];
  const listener = (warning: Error) => void found.push(warning.message);
  process.on("warning", listener);
  await during();
  await new Promise((resolve) => setImmediate(resolve)); // they come after the present turn
  process.off("warning", listener);
  return found;
}

async function untilAborted(signal: AbortSignal): Promise<never> {
  return await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

test("many slots and many calls with one signal do not look like a leak", async () => {
  const stop = new AbortController();
  let asked = 0;
  const fetch = async ({ signal }: Request) => {
    if (++asked === 80) setImmediate(() => stop.abort());
    return await untilAborted(signal);
  };
  const queue = new Queue({ url, fetch });
  const found = await warnings(async () => {
    const calls = Array.from({ length: 40 }, () => assert.rejects(queue.stats("t", { signal: stop.signal })));
    const worker = new Worker(queue, { concurrency: 40, log: { warn: () => {} } }).handle("t", () => {});
    await Promise.all([worker.run(stop.signal), ...calls]);
  });
  assert.deepEqual(found, []);
});

test("many attempts at once do not look like a leak", async () => {
  const stop = new AbortController();
  const job = { topic: "t", id: "1", body: 1, attempt: 1, body_unreadable: null };
  const claim = { claim: "token", group: "default", ttr_ms: 60_000, encrypted: false, job };
  const fetch = async (request: Request) => {
    if (request.url.endsWith("/finish")) return new Response(null, { status: 204 });
    return running < 40 ? Response.json(claim) : await untilAborted(request.signal);
  };
  let running = 0;
  let release = () => {};
  const all = new Promise<void>((resolve) => (release = resolve));
  const worker = new Worker(new Queue({ url, fetch }), { concurrency: 40 }).handle("t", async () => {
    if (++running === 40) {
      stop.abort();
      release();
    }
    await all;
  });
  assert.deepEqual(await warnings(() => worker.run(stop.signal)), []);
  assert.equal(running, 40);
});

for (const id of [".", ".."]) {
  test(`a job can't be named ${id}, which no URL can hold`, async () => {
    const fetch = () => Promise.reject(new Error("a request was sent"));
    const queue = new Queue({ url, fetch });
    await assert.rejects(queue.enqueue("t", 1, { id }), InvalidInput);
    await assert.rejects(queue.get("t", id), InvalidInput);
    await assert.rejects(queue.configure(id, {}), (error: InvalidInput) => error.code === "invalid-input");
  });
}
