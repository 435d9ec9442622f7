/** Sends requests: with the token, a limit of time, typed errors, and again where that is safe. */

import { setTimeout as sleep } from "node:timers/promises";
import isNetworkError from "is-network-error";
import createClient, { type Client } from "openapi-fetch";
import pRetry from "p-retry";
import { InvalidInput, mayRepeat, ProblemError, problemOf, ServerUnreachable } from "./errors.js";
import type { paths } from "./schema.js";

export interface Options {
  /** Where `streamdq serve` listens. */
  url: string;
  /** A token, or a function that returns the current one. */
  token?: string | (() => string | Promise<string>);
  /** How long to wait for an answer. Default: 30 s; for `take`, 90 s. */
  timeout_ms?: number;
  /** How often a request is sent again where that is safe. Default: 4. */
  retries?: number;
  /** Send a request again no longer than this, nor wait longer for a `Retry-After`. Default: 2 min. */
  give_up_ms?: number;
  /** Called before a request is sent again. */
  onRetry?: (error: Error) => void;
  /** Replaces the global fetch, for example to trace requests. */
  fetch?: (request: Request) => Promise<Response>;
}

export interface CallOptions {
  /** Ends the call; it then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface SendOptions extends CallOptions {
  /** The request may be sent again even if the first one may have been carried out. */
  repeatable: boolean;
  timeout_ms?: number;
  retries?: number;
  /** Send it again no longer than this. If the server's `Retry-After` lies beyond, its error is thrown at once. */
  give_up_ms?: number;
  /** Called before it is sent again, besides that of the queue's options. */
  onRetry?: (error: Error) => void;
}

interface Answer<Data> {
  data?: Data;
  error?: unknown;
  response: Response;
}

const GIVE_UP_MS = 120_000;
const MOST_SLEEP_MS = 2 ** 31 - 1; // a longer timer fires at once
const NO_NAMES = new Set([".", ".."]);

export class Requests {
  readonly http: Client<paths>;
  readonly #options: Options;

  constructor(options: Options) {
    this.#options = options;
    const { url, token, fetch } = options;
    this.http = createClient<paths>({ baseUrl: url, ...(fetch && { fetch }) });
    this.http.use({
      onRequest({ params }) {
        for (const [name, value] of Object.entries(params.path ?? {})) checkName(name, value);
      },
    });
    if (token !== undefined) {
      this.http.use({
        async onRequest({ request }) {
          request.headers.set("Authorization", `Bearer ${typeof token === "string" ? token : await token()}`);
        },
      });
    }
  }

  async send<Data>(ask: (signal: AbortSignal) => Promise<Answer<Data>>, options: SendOptions): Promise<Data> {
    const { retries = this.#options.retries ?? 4, give_up_ms = this.#options.give_up_ms ?? GIVE_UP_MS } = options;
    const signal = options.signal && AbortSignal.any([options.signal]); // each call has listeners of its own
    const began_ms = performance.now();
    return await pRetry(() => this.#once(ask, options), {
      retries,
      minTimeout: 200,
      maxTimeout: 5000,
      randomize: true,
      maxRetryTime: give_up_ms,
      ...(signal && { signal }),
      shouldRetry: async ({ error }) => {
        if (!mayRepeat(error, options.repeatable)) return false;
        const wait_ms = (error instanceof ProblemError && error.retry_after_ms) || 0;
        if (performance.now() - began_ms + wait_ms > give_up_ms) return false;
        this.#options.onRetry?.(error);
        options.onRetry?.(error);
        if (wait_ms) await sleep(Math.min(wait_ms, MOST_SLEEP_MS), undefined, { signal }).catch(() => {});
        signal?.throwIfAborted();
        return true;
      },
    });
  }

  async #once<Data>(ask: (signal: AbortSignal) => Promise<Answer<Data>>, options: SendOptions): Promise<Data> {
    const limit = AbortSignal.timeout(options.timeout_ms ?? this.#options.timeout_ms ?? 30_000);
    const either = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
    try {
      const { data, error, response } = await ask(either);
      if (!response.ok) throw problemOf(response, error);
      return data as Data;
    } catch (error) {
      options.signal?.throwIfAborted();
      if (error instanceof Error && (limit.aborted || isNetworkError(error))) throw new ServerUnreachable(error);
      throw error;
    }
  }
}

/** URLs can't hold these: whoever reads one removes them, and another path is left. */
function checkName(name: string, value: unknown): void {
  if (!NO_NAMES.has(String(value))) return;
  const detail = `${name}: ${JSON.stringify(value)} can't be a name`;
  throw new InvalidInput(422, { type: "urn:streamdq:problem:invalid-input", title: "Invalid input", detail, status: 422 });
}
