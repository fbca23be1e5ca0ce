// Talks to the service that this page came from, and to nobody else.

const KEY = "medverify.key";

/** The key of this tab; empty: none. */
export const key = () => sessionStorage.getItem(KEY) ?? "";

export function keepKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** What the service refused, or what broke on the way. */
export class Refusal extends Error {
  constructor(status, title, detail, retryAfter = null) {
    super(detail);
    Object.assign(this, { status, title, detail, retryAfter });
  }
}

const headers = (more = {}) => (key() ? { ...more, Authorization: `Bearer ${key()}` } : more);

async function reached(path, request) {
  let answer;
  try {
    answer = await fetch(path, { ...request, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The service cannot be reached", "It does not answer, or the connection is gone.");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const title = problem.title ?? `The service answered ${answer.status}`;
  throw new Refusal(answer.status, title, problem.detail ?? "", answer.headers.get("Retry-After"));
}

/** GET as JSON. */
export async function ask(path) {
  return (await reached(path, { headers: headers({ Accept: "application/json" }) })).json();
}

/** The events of a case that is being judged, as `[name, data]`, as they come. */
export async function* watch(body, signal) {
  const answer = await reached("/verify/stream", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", Accept: "text/event-stream" }),
    body: JSON.stringify(body),
    signal,
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, "The connection broke", "The service went away before its judgment.");
    }
    if (piece.done) return;
    const parts = (waiting + piece.value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      const event = read(part);
      if (event) yield event;
    }
  }
}

function read(part) {
  const lines = part.split("\n");
  const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
  const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
  return name ? [name, JSON.parse(data.join("\n"))] : null; // else a comment
}
