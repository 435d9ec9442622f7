/** What a worker tells of an attempt, and when, by a clock that the test sets. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { type Claim, type Queue, StaleClaim, TtrPassed, Worker } from "streamdq";

type Topics = { t: number };

/** A queue with one job, of this TTR, and what its worker tells it. */
function oneJob(ttr_ms: number, encrypted = false) {
  const job = { topic: "t", id: "1", body: 1, attempt: 1, body_unreadable: null };
  const claims = [{ claim: "token", group: "default", ttr_ms, encrypted, job } as unknown as Claim<number>];
  const told: string[] = [];
  const queue = {
    take: async (_topic: string, { signal }: { signal: AbortSignal }) => {
      const claim = claims.pop() ?? null;
      if (!claim && !signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
      return claim;
    },
    touch: async (_token: string, ttr?: number) => void told.push(`touch ${ttr}`),
    fail: async (_claim: Claim, error: string, options: { traceback?: string }) => {
      told.push(options.traceback === undefined ? error : `${error} with its traceback`);
    },
  };
  return { queue: queue as unknown as Queue<Topics>, told };
}

for (const { ttr_ms, touch_s, cut_ms, text } of [
  { ttr_ms: 100_000, touch_s: undefined, cut_ms: 99_800, text: "100" },
  { ttr_ms: 1_500, touch_s: undefined, cut_ms: 1_350, text: "1.5" },
  { ttr_ms: 1_500, touch_s: 60, cut_ms: 59_800, text: "60" },
]) {
  test(`an attempt with a TTR of ${text} s is cut off just before that has passed`, async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    const { queue, told } = oneJob(ttr_ms);
    const stop = new AbortController();
    let signal: AbortSignal | undefined;
    const worker = new Worker(queue, { concurrency: 1, log: { warn: () => {} } });
    let begins = () => {};
    const begun = new Promise<void>((resolve) => (begins = resolve));
    worker.handle("t", async (attempt) => {
      if (touch_s !== undefined) await attempt.touch(touch_s);
      signal = attempt.signal;
      begins();
      await new Promise((resolve) => attempt.signal.addEventListener("abort", resolve));
    });
    const running = worker.run(stop.signal);
    await begun;
    mock.timers.tick(cut_ms * 0.5);
    assert.equal(signal?.aborted, false);
    mock.timers.tick(cut_ms * 0.5);
    assert.ok(signal?.reason instanceof TtrPassed);
    stop.abort();
    await running;
    mock.timers.reset();
    assert.deepEqual(told.slice(-1), [`TtrPassed: TTR ${text}s passed with its traceback`]);
  });
}

for (const [encrypted, error] of [
  [false, "TypeError: swordfish with its traceback"],
  [true, "TypeError: its message is not kept"],
] as const) {
  test(`what may quote a body that is ${encrypted ? "" : "not "}encrypted`, async () => {
    const { queue, told } = oneJob(60_000, encrypted);
    const stop = new AbortController();
    const shown: string[] = [];
    const log = { warn: (...parts: unknown[]) => void shown.push(parts.join(" ")) };
    const worker = new Worker(queue, { concurrency: 1, log }).handle("t", () => {
      queueMicrotask(() => stop.abort());
      throw new TypeError("swordfish");
    });
    await worker.run(stop.signal);
    assert.deepEqual(told, [error]);
    assert.equal(shown.join().includes("swordfish"), !encrypted);
  });
}

test("a touch that comes too late ends the handler", async () => {
  const { queue, told } = oneJob(60_000);
  const stale = new StaleClaim(409, { title: "taken over" });
  queue.touch = () => Promise.reject(stale);
  queue.release = async () => void told.push("release");
  const stop = new AbortController();
  const reasons: unknown[] = [];
  const worker = new Worker(queue, { concurrency: 1, log: { warn: () => {} } }).handle("t", async (attempt) => {
    attempt.touch().catch((error: unknown) => reasons.push(error)); // as in an interval
    await new Promise((resolve) => attempt.signal.addEventListener("abort", resolve));
    reasons.push(attempt.signal.reason);
    stop.abort();
    attempt.signal.throwIfAborted();
  });
  await worker.run(stop.signal);
  assert.deepEqual(reasons, [stale, stale]);
  assert.deepEqual(told, ["release"]); // should the claim hold all the same, the attempt has not failed
});
