export * from "./errors.js";
export * from "./queue.js";
export type { CallOptions, Options, SendOptions } from "./requests.js";
export type { components, operations, paths } from "./schema.js";
export * from "./worker.js";
