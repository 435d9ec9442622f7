/** A worker: takes jobs, runs handlers, and ends their claims. */

import { setMaxListeners } from "node:events";
import { setTimeout as pause } from "node:timers/promises";

import { JobAborted, StaleClaim, StreamdqError, UnknownTopic } from "./errors.js";
import type { Claim, Duration, Job, Queue, Topics } from "./queue.js";

/** Thrown by a handler: try again after `delay`, without using up a step of the retry schedule. */
export class Retry extends Error {
  constructor(
    readonly delay: Duration,
    reason = "the handler asked for another attempt",
  ) {
    super(reason);
    this.name = "Retry";
  }
}

/** Thrown by a handler that can't do its job now: run it again after `delay`. It uses up neither attempt nor step. */
export class Snooze extends Error {
  constructor(
    readonly delay: Duration,
    reason = "the handler put the job off",
  ) {
    super(reason);
    this.name = "Snooze";
  }
}

/** Thrown by a handler: give the job up at once. It becomes a dead letter with this reason. */
export class Bury extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = "Bury";
  }
}

/** The reason of an attempt's signal when its TTR has passed. */
export class TtrPassed extends StreamdqError {}
/** The reason of an attempt's signal when the worker ends and its grace period is over. */
export class WorkerStops extends StreamdqError {}

export type Handler<Body> = (attempt: Attempt<Body>) => unknown;

export interface WorkerOptions {
  group?: string;
  /** How many jobs of each topic run at once; so many requests are open. Default: 10. */
  concurrency?: number;
  /** How long running handlers may go on when the worker stops. Default: 30 s. */
  grace_ms?: number;
  /**
   * Whether the message and the stack of what handlers throw are kept with the job and its history. Default: true. Otherwise
   * only the name of the error is, and the text of Retry, Snooze and Bury. So it is if the body is stored encrypted.
   */
  keep_errors?: boolean;
  /** Where failures are told. Default: the console. Bodies are never shown. */
  log?: Pick<Console, "warn">;
}

interface Served {
  topic: string;
  handler: Handler<never>;
  concurrency: number;
}

type Outcome = () => Promise<void>;

const UNKNOWN_MS = 1000; // between looks whether a topic is there
const TAKE = "30s";
const UNREADABLE = "10s";
const CUT_BEFORE_MS = 200; // before the TTR passes, or such a part of it if that is less
const CUT_BEFORE = 0.1;
const MOST_ERROR_CHARS = 2000;
const MOST_STACK_CHARS = 4000; // of longer ones the server keeps the end, and a stack begins with the call that threw

export class Worker<T extends Topics = Topics> {
  readonly #queue: Queue<T>;
  readonly #options: Required<WorkerOptions>;
  readonly #served: Served[] = [];
  #failing = false;

  constructor(queue: Queue<T>, options: WorkerOptions = {}) {
    this.#queue = queue;
    this.#options = { group: "default", concurrency: 10, grace_ms: 30_000, keep_errors: true, log: console, ...options };
  }

  /**
   * Runs the topic's jobs with this function. When it returns, the job is done; when it throws, the job is retried, or
   * what Retry, Snooze and Bury say. It has the job's TTR: then its signal is aborted, and the attempt has failed.
   */
  handle<K extends keyof T & string>(
    topic: K,
    handler: Handler<T[K]>,
    { concurrency = this.#options.concurrency }: { concurrency?: number } = {},
  ): this {
    this.#served.push({ topic, handler, concurrency });
    return this;
  }

  /**
   * Works until the signal is aborted: no more jobs are taken, and running handlers get the grace period. A server that
   * can't be reached is tried again and again.
   *
   * @throws what the server refuses for good, such as Unauthenticated; running handlers get the grace period first.
   */
  async run(signal: AbortSignal): Promise<void> {
    const failed = new AbortController();
    const stop = AbortSignal.any([signal, failed.signal]);
    const grace = new AbortController();
    setMaxListeners(0, stop, grace.signal); // each slot listens, which is no leak
    let timer: NodeJS.Timeout | undefined;
    const onStop = () => {
      timer = setTimeout(() => grace.abort(new WorkerStops("the worker stops")), this.#options.grace_ms);
    };
    if (stop.aborted) return;
    stop.addEventListener("abort", onStop, { once: true });
    const slots = this.#served.flatMap((served) =>
      Array.from({ length: served.concurrency }, () =>
        this.#slot(served, stop, grace.signal).catch((error: unknown) => {
          failed.abort(error);
          throw error;
        }),
      ),
    );
    const ended = await Promise.allSettled(slots);
    stop.removeEventListener("abort", onStop);
    clearTimeout(timer);
    for (const slot of ended) if (slot.status === "rejected") throw slot.reason;
  }

  async #slot(served: Served, stop: AbortSignal, grace: AbortSignal): Promise<void> {
    while (!stop.aborted) {
      const claim = await this.#take(served.topic, stop);
      if (claim) await this.#attempt(served, claim, grace);
    }
  }

  async #take(topic: string, signal: AbortSignal): Promise<Claim | null> {
    const { group } = this.#options;
    const onRetry = (error: Error) => this.#tellOnce(error);
    try {
      const forever = { retries: Infinity, give_up_ms: Infinity };
      const claim = await this.#queue.take(topic, { group, timeout: TAKE, signal, ...forever, onRetry });
      this.#failing = false;
      return claim;
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof UnknownTopic)) throw error;
      this.#tellOnce(error); // its first job makes it
      await pause(UNKNOWN_MS, undefined, { signal }).catch(() => {});
      return null;
    }
  }

  /** Of all slots that the server fails, until it answers again. */
  #tellOnce(error: Error): void {
    if (!this.#failing) this.#options.log.warn("streamdq: the worker gets no jobs, and tries again:", error);
    this.#failing = true;
  }

  async #attempt(served: Served, claim: Claim, grace: AbortSignal): Promise<void> {
    if (claim.job.body_unreadable) {
      const why = claim.job.body_unreadable;
      this.#options.log.warn(`streamdq: the server can't read the body of ${claim.job.topic} ${claim.job.id}: ${why}`);
      return await this.#send(claim, () => this.#queue.snooze(claim, UNREADABLE, why));
    }
    const attempt = new Attempt<never>(this.#queue, claim as Claim<never>);
    let onGrace = () => {};
    const graceOver = new Promise<void>((resolve) => {
      onGrace = () => {
        attempt.abort(grace.reason);
        resolve();
      };
    });
    if (grace.aborted) onGrace();
    else grace.addEventListener("abort", onGrace, { once: true });
    const handled = (async () => served.handler(attempt))().then(
      () => null,
      (error: unknown) => ({ error: attempt.signal.aborted ? attempt.signal.reason : error }),
    );
    const cut = attempt.aborted.then((error) => ({ error }));
    const failure = await Promise.race([handled, cut]);
    const outcome = failure
      ? this.#failed(claim, failure.error, attempt.signal)
      : () => this.#queue.finish(claim, limits(claim));
    await this.#send(claim, outcome);
    await Promise.race([handled, graceOver]); // a handler that goes on keeps its slot
    grace.removeEventListener("abort", onGrace);
    attempt.end();
  }

  /** How an attempt ends whose handler threw this, or was stopped for this reason. */
  #failed(claim: Claim, error: unknown, signal: AbortSignal): Outcome {
    const { job } = claim;
    const text = textOf(error).slice(0, MOST_ERROR_CHARS);
    const isLost = error instanceof StaleClaim && error === signal.reason; // a touch was refused: that is no failure
    if (error instanceof WorkerStops || isLost) return () => this.#queue.release(claim, limits(claim));
    if (error instanceof Snooze) return () => this.#queue.snooze(claim, error.delay, text, limits(claim));
    const keeps = this.#options.keep_errors && !claim.encrypted; // they may quote the body
    const kept = keeps || error instanceof TtrPassed ? text : `${nameOf(error)}: its message is not kept`;
    const shown = claim.encrypted ? kept : error;
    this.#options.log.warn(`streamdq: attempt ${job.attempt} of ${job.topic} ${job.id} failed:`, shown);
    if (error instanceof Bury) return () => this.#queue.bury(claim, text, limits(claim));
    if (error instanceof Retry) return () => this.#queue.fail(claim, text, { delay: error.delay, ...limits(claim) });
    const stack = keeps && error instanceof Error ? { traceback: stackOf(error) } : {};
    return () => this.#queue.fail(claim, kept, { ...stack, ...limits(claim) });
  }

  /** Ends the claim. If that fails, the job is delivered again when its TTR has passed. */
  async #send(claim: Claim, outcome: Outcome): Promise<void> {
    try {
      await outcome();
    } catch (error) {
      if (!(error instanceof StreamdqError)) throw error;
      if (error instanceof JobAborted) return; // it is cancelled, whatever its handler has done
      const what = error instanceof StaleClaim ? "was taken over" : "could not be ended";
      this.#options.log.warn(`streamdq: the claim of ${claim.job.topic} ${claim.job.id} ${what}:`, error);
    }
  }
}

function textOf(error: unknown): string {
  if (error instanceof Bury) return error.message;
  if (error instanceof Error) return String(error);
  return typeof error === "string" ? error : "what was thrown is no Error";
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : "Error";
}

function stackOf(error: Error): string {
  return (error.stack ?? "").slice(0, MOST_STACK_CHARS);
}

/** After its TTR a claim has ended, so there is nothing left to say. */
function limits(claim: Claim): { retries: number; give_up_ms: number } {
  return { retries: Infinity, give_up_ms: claim.ttr_ms };
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}

/** One attempt to run a job, as its handler sees it. */
export class Attempt<Body> {
  readonly job: Job<Body>;
  readonly group: string;
  /**
   * Aborted a tenth of the TTR before that has passed, at most 0.2 s, or when the worker stops. Pass it on to fetch and
   * the like.
   */
  readonly signal: AbortSignal;
  /** @internal Resolves with the reason when the signal is aborted. */
  readonly aborted: Promise<unknown>;
  readonly #controller = new AbortController();
  readonly #touch: (ttr?: number) => Promise<void>;
  #ttr_ms: number;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;

  /** @internal */
  constructor(queue: Pick<Queue, "touch">, claim: Claim<Body>) {
    this.job = claim.job;
    this.group = claim.group;
    this.signal = this.#controller.signal;
    this.aborted = aborted(this.signal).then(() => this.signal.reason as unknown);
    this.#touch = (ttr) => queue.touch(claim.claim, ttr, { signal: this.signal });
    this.#ttr_ms = claim.ttr_ms;
    this.#start();
  }

  get body(): Body {
    return this.job.body;
  }

  /**
   * Starts the TTR again, or sets another one, in seconds. If another worker has the job by now, the signal is aborted, and
   * StaleClaim thrown; if somebody has aborted the job, JobAborted.
   */
  async touch(ttr_s?: number): Promise<void> {
    const asked_ms = performance.now();
    try {
      await this.#touch(ttr_s);
    } catch (error) {
      if (error instanceof StaleClaim) this.abort(error);
      throw error;
    }
    if (ttr_s !== undefined) this.#ttr_ms = ttr_s * 1000;
    if (!this.signal.aborted && !this.#ended) this.#start(asked_ms);
  }

  /** @internal Aborts the signal. */
  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  /** @internal Stops its clock. */
  end(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  /** Just before the TTR has passed, because then another worker may get the job at once, and not by its schedule. */
  #start(from_ms = performance.now()): void {
    clearTimeout(this.#timer);
    const passed = () => this.abort(new TtrPassed(`TTR ${this.#ttr_ms / 1000}s passed`));
    const cut_ms = this.#ttr_ms - Math.min(CUT_BEFORE_MS, this.#ttr_ms * CUT_BEFORE);
    this.#timer = setTimeout(passed, Math.min(from_ms + cut_ms - performance.now(), 2 ** 31 - 1));
  }
}
