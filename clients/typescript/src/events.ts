/** Reads the server's stream of events. */

import isNetworkError from "is-network-error";

/** Each event's id, and its data if it has some. */
export async function* serverSentEvents(
  stream: ReadableStream<Uint8Array>,
): AsyncGenerator<{ id: string; data: string | undefined }, void, void> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    const parts = (text + decoder.decode(chunk, { stream: true })).split("\n\n");
    text = parts.pop() ?? "";
    for (const part of parts) {
      const fields = new Map(part.split("\n").map((line) => line.split(/: (.*)/s, 2) as [string, string]));
      yield { id: fields.get("id") ?? "", data: fields.get("data") };
    }
  }
}

/** Whether reading has ended because the connection was lost, or lasted long enough. */
export function isLost(error: unknown): boolean {
  return error instanceof Error && (error.name === "TimeoutError" || isNetworkError(error));
}
