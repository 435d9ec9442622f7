/** Sends requests: with the token, a limit of time, typed errors, and again where that is safe. */

import { setTimeout as sleep } from "node:timers/promises";
import isNetworkError from "is-network-error";
import createClient, { type Client } from "openapi-fetch";
import pRetry from "p-retry";
import { mayRepeat, ProblemError, problemOf, ServerUnreachable } from "./errors.js";
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
  /** Send it again no longer than this. */
  give_up_ms?: number;
  /** Called before it is sent again, besides that of the queue's options. */
  onRetry?: (error: Error) => void;
}

interface Answer<Data> {
  data?: Data;
  error?: unknown;
  response: Response;
}

export class Requests {
  readonly http: Client<paths>;
  readonly #options: Options;

  constructor(options: Options) {
    this.#options = options;
    const { url, token, fetch } = options;
    this.http = createClient<paths>({ baseUrl: url, ...(fetch && { fetch }) });
    if (token !== undefined) {
      this.http.use({
        async onRequest({ request }) {
          request.headers.set("Authorization", `Bearer ${typeof token === "string" ? token : await token()}`);
        },
      });
    }
  }

  async send<Data>(ask: (signal: AbortSignal) => Promise<Answer<Data>>, options: SendOptions): Promise<Data> {
    const { retries = this.#options.retries ?? 4, give_up_ms, signal } = options;
    return await pRetry(() => this.#once(ask, options), {
      retries,
      minTimeout: 200,
      maxTimeout: 5000,
      randomize: true,
      ...(give_up_ms !== undefined && { maxRetryTime: give_up_ms }),
      ...(signal && { signal }),
      shouldRetry: async ({ error }) => {
        if (!mayRepeat(error, options.repeatable)) return false;
        this.#options.onRetry?.(error);
        options.onRetry?.(error);
        const wait_ms = error instanceof ProblemError ? error.retry_after_ms : 0;
        if (wait_ms) await sleep(wait_ms, undefined, { signal }).catch(() => signal?.throwIfAborted());
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
