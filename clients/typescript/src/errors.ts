/** Every error of the client. A problem of the server has a class for its kind, and that kind as its `code`. */

import type { components } from "./schema.js";

type Details = Partial<components["schemas"]["Problem"]>;

export class StreamdqError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No answer arrived: the server can't be reached, or took too long. What the request asks for may have been done. */
export class ServerUnreachable extends StreamdqError {
  /** True if no request was sent, so that nothing was done. */
  readonly never_sent: boolean;

  constructor(cause: Error) {
    const code = codeOf(cause);
    super(`no answer from the server: ${code ?? cause.message}`, { cause });
    this.never_sent = NEVER_SENT.has(code ?? "");
  }
}

const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT", "ConnectionRefused"]);

function codeOf(error: Error): string | undefined {
  const { code } = (error.cause ?? error) as { code?: unknown };
  return typeof code === "string" ? code : undefined;
}

/** The server refused the request, or failed (RFC 9457). */
export class ProblemError extends StreamdqError {
  /** The last part of the problem's `type`, such as `job-exists`; `http-502` if the answer is not streamdq's. */
  readonly code: string;
  readonly status: number;
  /** All that the server said. */
  readonly problem: Details;
  /** When to try again, if the server says so. */
  readonly retry_after_ms: number | undefined;

  constructor(status: number, problem: Details, retry_after_ms?: number) {
    const code = problem.type?.startsWith(TYPE) ? problem.type.slice(TYPE.length) : `http-${status}`;
    super([problem.title ?? code, problem.detail].filter(Boolean).join(": "));
    this.code = code;
    this.status = status;
    this.problem = problem;
    this.retry_after_ms = retry_after_ms;
  }
}

const TYPE = "urn:streamdq:problem:";

/** A value can't be accepted; `problem.errors` says which. */
export class InvalidInput extends ProblemError {}
/** The server needs a valid token. */
export class Unauthenticated extends ProblemError {}
/** The token does not allow this. */
export class Forbidden extends ProblemError {}
/** There is no such topic, group, job, schedule, flow or path. */
export class NotFound extends ProblemError {}
export class UnknownTopic extends NotFound {}
export class UnknownGroup extends NotFound {}
/** The job has ended, or never was. */
export class NoSuchJob extends NotFound {}
export class NoSuchSchedule extends NotFound {}
/** The flow was forgotten since it ended, or never was. */
export class NoSuchFlow extends NotFound {}
/** There is neither the job nor a result of it. */
export class NoSuchResult extends NotFound {}
/** Another job has the id. */
export class JobExists extends ProblemError {}
/** Nothing is known of a job that this one was to wait for: it has ended, or never was. Nothing was enqueued. */
export class ParentUnknown extends ProblemError {}
/** The job is running or dead. */
export class JobBusy extends ProblemError {}
/** The claim has ended: its TTR passed and the job was taken over, or it was ended in another way. */
export class StaleClaim extends ProblemError {}
/** Somebody has aborted the job: it ends as cancelled. */
export class JobAborted extends StaleClaim {}
export class TopicNotEmpty extends ProblemError {}
export class TooManyTopics extends ProblemError {}
export class RateLimited extends ProblemError {}
/** The change was made, but is not confirmed as durable; repeat the call with the same id. */
export class NotDurable extends ProblemError {}
/** Redis can't give this durability; nothing was written. */
export class DurabilityUnsupported extends ProblemError {}
/** The server or what is behind it does not work at the moment. */
export class ServerUnavailable extends ProblemError {}
/** A newer version has written the data: the server must be upgraded. */
export class NewerFormat extends ProblemError {}

export const CLASSES = {
  malformed: InvalidInput,
  "invalid-input": InvalidInput,
  "too-large": InvalidInput,
  "unsupported-media-type": InvalidInput,
  unauthenticated: Unauthenticated,
  forbidden: Forbidden,
  "not-found": NotFound,
  "method-not-allowed": NotFound,
  "unknown-topic": UnknownTopic,
  "unknown-group": UnknownGroup,
  "no-job": NoSuchJob,
  "no-schedule": NoSuchSchedule,
  "no-flow": NoSuchFlow,
  "no-result": NoSuchResult,
  "job-exists": JobExists,
  "parent-unknown": ParentUnknown,
  "job-busy": JobBusy,
  "stale-claim": StaleClaim,
  "job-aborted": JobAborted,
  "topic-not-empty": TopicNotEmpty,
  "too-many-topics": TooManyTopics,
  "rate-limited": RateLimited,
  "not-durable": NotDurable,
  "durability-unsupported": DurabilityUnsupported,
  timeout: ServerUnavailable,
  "internal-error": ServerUnavailable,
  "too-busy": ServerUnavailable,
  stopping: ServerUnavailable,
  "redis-unavailable": ServerUnavailable,
  "redis-refuses": ServerUnavailable,
  "storage-unavailable": ServerUnavailable,
  "newer-format": NewerFormat,
} as const satisfies Record<string, typeof ProblemError>;

/** The error for an answer that is none of the 2xx. */
export function problemOf(response: Response, body: unknown): ProblemError {
  const problem = typeof body === "object" && body !== null ? (body as Details) : {};
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  const given = [response.status, problem, seconds >= 0 ? seconds * 1000 : undefined] as const;
  const plain = new ProblemError(...given);
  const kind = plain.code as keyof typeof CLASSES;
  return Object.hasOwn(CLASSES, kind) ? new CLASSES[kind](...given) : plain;
}

const NOTHING_DONE = new Set(["rate-limited", "too-busy"]);
const MAY_PASS = new Set([
  "timeout", "stopping", "redis-unavailable", "redis-refuses", "storage-unavailable", "http-502", "http-503", "http-504",
]);

/** Whether the same request may be sent again: always if nothing was done, else if it is `repeatable`. */
export function mayRepeat(error: Error, repeatable: boolean): boolean {
  if (error instanceof ServerUnreachable) return repeatable || error.never_sent;
  return error instanceof ProblemError && (NOTHING_DONE.has(error.code) || (repeatable && MAY_PASS.has(error.code)));
}
