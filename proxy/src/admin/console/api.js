// What the page asks the gateway, and how it waits: a token where one is asked for, streams that come back by themselves.

const KEY = "exeat-admin-token";
let onSignIn = () => {};

/** Calls `handler` when the gateway asks for a token, with whether one was shown already. */
export function whenTokenIsAskedFor(handler) {
  onSignIn = handler;
}

export function useToken(token) {
  sessionStorage.setItem(KEY, token);
}

async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  const token = sessionStorage.getItem(KEY);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  if (response.status === 401) {
    sessionStorage.removeItem(KEY);
    onSignIn(Boolean(token));
  }
  return response;
}

/** The JSON of a resource. A refusal is an error that says what the gateway said. */
export async function json(path, options) {
  const response = await ask(path, options);
  const text = await response.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error(`${path} answered ${response.status} without JSON`);
  }
  if (!response.ok && response.status !== 503) throw new Error(body.detail ?? `${path} answered ${response.status}`);
  return body;
}

export async function text(path) {
  const response = await ask(path);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.text();
}

/** Hands on each event of a stream until it ends; throws where it breaks off. */
export async function events(path, signal, onOpen, onEvent) {
  const response = await ask(path, { headers: { Accept: "text/event-stream" }, signal });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the stream has ended");
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:"));
      const kind = block.split("\n").find((line) => line.startsWith("event:"))?.slice(6).trim();
      if (data.length) onEvent(JSON.parse(data.map((line) => line.slice(5).trimStart()).join("\n")), kind);
    }
  }
}

export const pause = (time) => new Promise((resume) => setTimeout(resume, time));

/** Runs `task` every `time` milliseconds while the page is looked at; `onState` hears whether it works. */
export async function every(time, task, onState = () => {}) {
  for (;;) {
    if (document.visibilityState === "visible") {
      try {
        await task();
        onState(null);
      } catch (error) {
        onState(error);
      }
    }
    await pause(time);
  }
}
