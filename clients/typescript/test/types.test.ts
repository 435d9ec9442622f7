/** What the compiler must refuse: each line below `@ts-expect-error` is an error. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Queue, Worker } from "streamdq";

type Topics = { "order.close": { order_id: number } };

async function refused(queue: Queue<Topics>): Promise<void> {
  await queue.enqueue("order.close", { order_id: 42 }, { delay: "30m", at: new Date() });
  // @ts-expect-error a body of another type
  await queue.enqueue("order.close", { order_id: "42" });
  // @ts-expect-error a topic that does not exist
  await queue.enqueue("order.clsoe", { order_id: 42 });
  // @ts-expect-error an option that does not exist
  await queue.enqueue("order.close", { order_id: 42 }, { dealy: "30m" });
  // @ts-expect-error a way to handle conflicts that does not exist
  await queue.enqueue("order.close", { order_id: 42 }, { on_conflict: "overwrite" });
  // @ts-expect-error a field of a body of another type
  (await queue.get("order.close", "a"))?.body.name;
  // @ts-expect-error neither ids nor all
  await queue.purge("order.close", {});
  new Worker(queue).handle("order.close", ({ body }) => {
    const id: number = body.order_id;
    // @ts-expect-error a field that the body does not have
    return [id, body.user];
  });
}

test("wrong calls do not compile", () => assert.equal(typeof refused, "function"));
