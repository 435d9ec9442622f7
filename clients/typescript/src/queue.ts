/** The queue behind a `streamdq serve`. Options and answers have the names that they have in the API. */

import type { Client } from "openapi-fetch";
import { NoSuchFlow, NoSuchJob } from "./errors.js";
import { isLost, serverSentEvents } from "./events.js";
import { type CallOptions, type Options, Requests, type SendOptions } from "./requests.js";
import type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
type Query<Operation extends keyof operations> = NonNullable<operations[Operation]["parameters"]["query"]>;

/** Each topic and the type of its bodies. */
export type Topics = Record<string, unknown>;
type TopicOf<T extends Topics> = keyof T & string;

/** Seconds, or text such as `250ms`, `15s`, `1h30m`, `2d`. */
export type Duration = number | string;
/** A job. Times are Unix milliseconds by Redis's clock, durations milliseconds. */
export type Job<Body = unknown> = Omit<Schemas["JobOut"], "body"> & { body: Body };
/** A claimed job. Whoever has `claim` can end the attempt. */
export type Claim<Body = unknown> = Omit<Schemas["ClaimOut"], "job"> & { job: Job<Body> };
export type JobHistory = Schemas["JobHistoryOut"];
export type JobEvent = Omit<JobHistory["events"][number], "event"> & {
  event: JobHistory["events"][number]["event"];
  id: string;
  /** Where `since` goes on after this event. */
  position: string;
};
export type JobResult = Schemas["ResultOut"];
export type Stats = Schemas["StatsOut"];
export type TopicSettings = Schemas["TopicOut"];
export type Flow = Schemas["FlowOut"];
export type BulkResult = Schemas["BulkOut"];

type At = { /** Due at this time: a Date, Unix milliseconds, or ISO 8601 with its zone. */ at?: Date | number | string };
/** Either `delay` or `at`. */
export type When = Pick<Schemas["WhenIn"], "delay"> & At;
export type JobOptions = Omit<Schemas["JobIn"], "body" | "at"> & At & { id?: string };
export type NewJob<Body> = JobOptions & { body: Body };
export type EnqueueOptions = JobOptions & Query<"put_job"> & CallOptions;
export type EnqueueManyOptions = Query<"put_bulk"> & CallOptions;
export type RescheduleOptions = When & Query<"reschedule_job"> & CallOptions;
export type Letters = { ids: string[] } | { all: true };
export type TakeOptions = Query<"take_job"> & CallOptions & Pick<SendOptions, "retries" | "give_up_ms" | "onRetry">;
export type EndOptions = CallOptions & Pick<SendOptions, "retries" | "give_up_ms">;

const FOLLOWED_MS = 330_000; // the server ends an answer after 300 s
const MOST_LINES = 5000;
const MOST_CHARS = 4_000_000;
const SHOWN = 100;

export class Queue<T extends Topics = Topics> {
  /** All operations of the API, typed; run their requests with `send`. */
  readonly http: Client<paths>;
  readonly #requests: Requests;

  constructor(options: Options) {
    this.#requests = new Requests(options);
    this.http = this.#requests.http;
  }

  /** Runs a request of `http`: returns its data, throws the errors of this package, repeats it where that is safe. */
  send: Requests["send"] = (ask, options) => this.#requests.send(ask, options);

  /**
   * Enqueues a job. Without an `id` it gets a random one, so that the request can be repeated if its answer is lost.
   *
   * @throws JobExists if the id is taken by a job with other content, unless `on_conflict` says otherwise.
   */
  async enqueue<K extends TopicOf<T>>(topic: K, body: T[K], options: EnqueueOptions = {}): Promise<Job<T[K]>> {
    const { id = crypto.randomUUID(), on_conflict, durable, signal, ...rest } = options;
    const params = { path: { topic, id }, query: { on_conflict, durable } };
    const job = { ...rest, at: moment(rest.at), body };
    const ask = (signal: AbortSignal) =>
      this.http.PUT("/v1/topics/{topic}/jobs/{id}", { params, body: job, signal });
    return (await this.send(ask, { repeatable: true, signal })) as Job<T[K]>;
  }

  /**
   * Enqueues many jobs, in requests of up to 5000. Jobs whose id is taken, or that are not valid, do not keep the others
   * out: the result numbers the first 100 of them. If a request was repeated because its answer was lost, `existing`
   * counts the jobs that the first one created.
   */
  async enqueueMany<K extends TopicOf<T>>(
    topic: K,
    jobs: Iterable<NewJob<T[K]>> | AsyncIterable<NewJob<T[K]>>,
    options: EnqueueManyOptions = {},
  ): Promise<BulkResult> {
    const { signal, ...query } = options;
    const total: BulkResult = { lines: 0, created: 0, existing: 0, invalid: 0, problems: [] };
    for await (const body of batches(jobs)) {
      const request = {
        params: { path: { topic }, query },
        body,
        bodySerializer: (text: string) => text,
        headers: { "Content-Type": "application/x-ndjson" },
      };
      const ask = (signal: AbortSignal) => this.http.POST("/v1/topics/{topic}/bulk", { ...request, signal });
      add(total, await this.send(ask, { repeatable: true, signal }));
    }
    return total;
  }

  /** The job, and its progress in each group; null if it has ended or never was. */
  async get<K extends TopicOf<T>>(
    topic: K,
    id: string,
    options: Query<"get_job"> & CallOptions = {},
  ): Promise<Job<T[K]> | null> {
    const { signal, ...query } = options;
    const params = { path: { topic, id }, query };
    const ask = (signal: AbortSignal) => this.http.GET("/v1/topics/{topic}/jobs/{id}", { params, signal });
    try {
      return (await this.send(ask, { repeatable: true, signal })) as Job<T[K]>;
    } catch (error) {
      if (error instanceof NoSuchJob) return null;
      throw error;
    }
  }

  /**
   * The past attempts of a job and other changes, with what failed in each, as long as the history has them; null if it has
   * nothing of the job.
   */
  async history(topic: TopicOf<T>, id: string, options: CallOptions = {}): Promise<JobHistory | null> {
    const params = { path: { topic, id } };
    const ask = (signal: AbortSignal) => this.http.GET("/v1/topics/{topic}/jobs/{id}/history", { params, signal });
    try {
      return await this.send(ask, { repeatable: true, ...options });
    } catch (error) {
      if (error instanceof NoSuchJob) return null;
      throw error;
    }
  }

  /**
   * What takes place in the topic, as it does: each attempt that ends, and each cancel, expiry, kick and burial. Ends with its
   * signal alone; goes on where it was after a lost connection. `since`: the `position` of an event, a moment, or `-1h`; without
   * it, from now on.
   */
  async *events(topic: TopicOf<T>, options: { since?: string } & CallOptions = {}): AsyncGenerator<JobEvent, void, void> {
    let position = options.since;
    for (;;) {
      const params = { path: { topic }, query: position === undefined ? {} : { since: position } };
      const ask = (signal: AbortSignal) =>
        this.http.GET("/v1/topics/{topic}/events", { params, signal, parseAs: "stream" });
      const sent = { repeatable: true, timeout_ms: FOLLOWED_MS, ...(options.signal && { signal: options.signal }) };
      const stream = (await this.send(ask, sent)) as unknown as ReadableStream<Uint8Array>;
      try {
        for await (const { id, data } of serverSentEvents(stream)) {
          position = id;
          if (data !== undefined) yield { ...(JSON.parse(data) as Omit<JobEvent, "position">), position };
        }
      } catch (error) {
        options.signal?.throwIfAborted();
        if (!isLost(error)) throw error;
      }
    }
  }

  /**
   * How the job has ended, with its `result`, as soon as it has; `outcome` is `waiting` if it has not within `wait_s`, at most 60.
   *
   * @throws NoSuchResult if there is neither the job nor a result of it.
   * @throws InvalidInput if the topic keeps no results.
   */
  async result(
    topic: TopicOf<T>,
    id: string,
    options: { wait_s?: number; group?: string; key?: string } & CallOptions = {},
  ): Promise<JobResult> {
    const { wait_s, group, key, ...rest } = options;
    const params = { path: { topic, id }, query: { wait_s, group, key } };
    const ask = (signal: AbortSignal) => this.http.GET("/v1/topics/{topic}/jobs/{id}/result", { params, signal });
    return await this.send(ask, { repeatable: true, timeout_ms: 90_000, ...rest });
  }

  /**
   * Cancels a waiting job: no new attempt of it starts.
   *
   * @throws NoSuchJob if there is none, also if an earlier request, whose answer was lost, has cancelled it.
   * @throws JobBusy if it is running or dead.
   */
  async cancel(
    topic: TopicOf<T>,
    id: string,
    options: Query<"cancel_job"> & CallOptions = {},
  ): Promise<void> {
    const { signal, ...query } = options;
    const params = { path: { topic, id }, query };
    const ask = (signal: AbortSignal) => this.http.DELETE("/v1/topics/{topic}/jobs/{id}", { params, signal });
    await this.send(ask, { repeatable: true, signal });
  }

  /**
   * Aborts a job, also while it runs: `cancelled` if it waited, `aborting` if its handler is told to stop. However that
   * ends, the job is cancelled, and no new attempt starts.
   *
   * @throws NoSuchJob if there is none, also if an earlier request, whose answer was lost, has cancelled it.
   * @throws JobBusy if it is dead.
   */
  async abort(
    topic: TopicOf<T>,
    id: string,
    options: Query<"abort_job"> & CallOptions = {},
  ): Promise<"cancelled" | "aborting"> {
    const { signal, ...query } = options;
    const params = { path: { topic, id }, query };
    const ask = (signal: AbortSignal) => this.http.POST("/v1/topics/{topic}/jobs/{id}/abort", { params, signal });
    return (await this.send(ask, { repeatable: true, signal })).result;
  }

  /**
   * How a flow stands, stage by stage; null if it was forgotten since it ended, or never was. `times`: also how long its jobs
   * took, and its critical path.
   */
  async flow(name: string, options: Query<"get_flow"> & CallOptions = {}): Promise<Flow | null> {
    const { signal, ...query } = options;
    const params = { path: { name }, query };
    const ask = (signal: AbortSignal) => this.http.GET("/v1/flows/{name}", { params, signal });
    try {
      return await this.send(ask, { repeatable: true, signal });
    } catch (error) {
      if (error instanceof NoSuchFlow) return null;
      throw error;
    }
  }

  /**
   * Cancels a flow: its jobs that wait are cancelled, attempts that run are aborted, and none of its jobs starts any more.
   *
   * @throws NoSuchFlow if there is none.
   */
  async cancelFlow(name: string, options: CallOptions = {}): Promise<Flow> {
    const params = { path: { name } };
    const ask = (signal: AbortSignal) => this.http.POST("/v1/flows/{name}/cancel", { params, signal });
    return await this.send(ask, { repeatable: true, ...options });
  }

  /**
   * Gives a waiting job a new due time. A lost answer is only repeated with `at`: with `delay`, a repeated request could
   * put off the retry of an attempt that has run meanwhile.
   *
   * @throws NoSuchJob if there is none.
   * @throws JobBusy if it is running or dead.
   */
  async reschedule<K extends TopicOf<T>>(topic: K, id: string, options: RescheduleOptions): Promise<Job<T[K]>> {
    const { signal, delay, at, ...query } = options;
    const request = { params: { path: { topic, id }, query }, body: { delay, at: moment(at) } };
    const ask = (signal: AbortSignal) =>
      this.http.POST("/v1/topics/{topic}/jobs/{id}/reschedule", { ...request, signal });
    return (await this.send(ask, { repeatable: at !== undefined, signal })) as Job<T[K]>;
  }

  /** A page of a group's dead letters, the longest dead first. `next` is the following page's `after`. */
  async dead<K extends TopicOf<T>>(
    topic: K,
    options: Query<"list_dead"> & CallOptions = {},
  ): Promise<{ jobs: Job<T[K]>[]; next: string | null }> {
    const { signal, ...query } = options;
    const params = { path: { topic }, query };
    const ask = (signal: AbortSignal) => this.http.GET("/v1/topics/{topic}/dead", { params, signal });
    return (await this.send(ask, { repeatable: true, signal })) as { jobs: Job<T[K]>[]; next: string | null };
  }

  /** Sends dead letters back; returns how many. They are ready at once, and their retry schedule starts again. */
  async kick(topic: TopicOf<T>, which: Letters, options: { group?: string } & CallOptions = {}): Promise<number> {
    if ("ids" in which && which.ids.length === 0) return 0;
    const { signal, group } = options;
    const request = { params: { path: { topic } }, body: { ...which, group } };
    const ask = (signal: AbortSignal) => this.http.POST("/v1/topics/{topic}/dead/kick", { ...request, signal });
    return (await this.send(ask, { repeatable: false, signal })).count;
  }

  /** Deletes dead letters for good; returns how many. */
  async purge(topic: TopicOf<T>, which: Letters, options: { group?: string } & CallOptions = {}): Promise<number> {
    if ("ids" in which && which.ids.length === 0) return 0;
    const { signal, group } = options;
    const request = { params: { path: { topic } }, body: { ...which, group } };
    const ask = (signal: AbortSignal) => this.http.POST("/v1/topics/{topic}/dead/purge", { ...request, signal });
    return (await this.send(ask, { repeatable: false, signal })).count;
  }

  /** The figures of one topic, or of all that the token allows. */
  async stats(topic?: TopicOf<T>, { signal }: CallOptions = {}): Promise<Stats> {
    const ask = (signal: AbortSignal) => this.http.GET("/v1/stats", { params: { query: { topic } }, signal });
    return await this.send(ask, { repeatable: true, signal });
  }

  /** Creates a topic, or changes its settings; those left out stay. Without any, it creates the topic or reads them. */
  async configure(
    topic: TopicOf<T>,
    settings: Schemas["TopicIn"],
    { signal }: CallOptions = {},
  ): Promise<TopicSettings> {
    const request = { params: { path: { topic } }, body: settings };
    const ask = (signal: AbortSignal) => this.http.PATCH("/v1/topics/{topic}", { ...request, signal });
    return await this.send(ask, { repeatable: true, signal });
  }

  /**
   * Claims a job; null if none is ready within `timeout` (60 s at most, 0 by default). End the claim within its TTR, or
   * the job is delivered again.
   */
  async take<K extends TopicOf<T>>(topic: K, options: TakeOptions = {}): Promise<Claim<T[K]> | null> {
    const { signal, retries, give_up_ms, onRetry, ...query } = options;
    const sending = { signal, retries, give_up_ms, onRetry };
    const params = { path: { topic }, query };
    const ask = (signal: AbortSignal) => this.http.POST("/v1/topics/{topic}/take", { params, signal });
    const found = await this.send(ask, { repeatable: true, timeout_ms: 90_000, ...sending });
    return (found as Claim<T[K]> | undefined) ?? null;
  }

  /**
   * Ends the attempt as done. `result`: what `result` returns, if the topic keeps results. Like every way to end a claim, it is
   * repeated if the answer is lost, which is safe.
   */
  async finish(claim: Claim | string, options: { result?: unknown } & EndOptions = {}): Promise<void> {
    const { result, ...rest } = options;
    const body = result === undefined ? { claim: tokenOf(claim) } : { claim: tokenOf(claim), result };
    await this.send((signal) => this.http.POST("/v1/claims/finish", { body, signal }), ending(rest));
  }

  /**
   * Ends the attempt as failed: the next step of the retry schedule, or `delay`, which uses up no step. `traceback` is kept
   * with the history, its last 4000 characters.
   */
  async fail(
    claim: Claim | string,
    error: string,
    options: { delay?: Duration; traceback?: string } & EndOptions = {},
  ): Promise<void> {
    const { delay, traceback, ...rest } = options;
    const body = { claim: tokenOf(claim), error, delay, traceback };
    await this.send((signal) => this.http.POST("/v1/claims/fail", { body, signal }), ending(rest));
  }

  /** Runs the job again after `delay`. This uses up neither an attempt nor a step. */
  async snooze(claim: Claim | string, delay: Duration, reason = "", options: EndOptions = {}): Promise<void> {
    const body = { claim: tokenOf(claim), delay, reason };
    await this.send((signal) => this.http.POST("/v1/claims/snooze", { body, signal }), ending(options));
  }

  /** Gives the job up: it is a dead letter until it is kicked or purged. */
  async bury(claim: Claim | string, reason: string, options: EndOptions = {}): Promise<void> {
    const body = { claim: tokenOf(claim), reason };
    await this.send((signal) => this.http.POST("/v1/claims/bury", { body, signal }), ending(options));
  }

  /** Hands the job back unfinished; the attempt does not count. */
  async release(claim: Claim | string, options: EndOptions = {}): Promise<void> {
    const body = { claim: tokenOf(claim) };
    await this.send((signal) => this.http.POST("/v1/claims/release", { body, signal }), ending(options));
  }

  /** Starts the claim's TTR again (a heartbeat), or sets another one. */
  async touch(claim: Claim | string, ttr?: Duration, options: EndOptions = {}): Promise<void> {
    const body = { claim: tokenOf(claim), ttr };
    await this.send((signal) => this.http.POST("/v1/claims/touch", { body, signal }), ending(options));
  }
}

function tokenOf(claim: Claim | string): string {
  return typeof claim === "string" ? claim : claim.claim;
}

function ending(options: EndOptions): SendOptions {
  return { ...options, repeatable: true };
}

function moment(at: Date | number | string | undefined): number | string | undefined {
  return at instanceof Date ? at.getTime() : at;
}

/** Lines of JSON, in texts of a size that can be kept and sent again. Each job gets an id, so that this is safe. */
async function* batches<Body>(jobs: Iterable<NewJob<Body>> | AsyncIterable<NewJob<Body>>): AsyncGenerator<string> {
  let lines: string[] = [];
  let chars = 0;
  for await (const job of jobs) {
    const line = JSON.stringify({ ...job, id: job.id ?? crypto.randomUUID(), at: moment(job.at) });
    lines.push(line);
    chars += line.length;
    if (lines.length >= MOST_LINES || chars >= MOST_CHARS) {
      yield lines.join("\n");
      [lines, chars] = [[], 0];
    }
  }
  if (lines.length > 0) yield lines.join("\n");
}

function add(total: BulkResult, part: BulkResult): void {
  const problems = part.problems.map((problem) => ({ ...problem, line: problem.line + total.lines }));
  total.problems.push(...problems.slice(0, SHOWN - total.problems.length));
  total.lines += part.lines;
  total.created += part.created;
  total.existing += part.existing;
  total.invalid += part.invalid;
}
