// Requests to the server this page came from. Addresses are relative, so the page works below any path.

import { sentence } from "./format.js";

export class ApiError extends Error {
  /** `status` is 0 if the server did not answer. */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const SENTENCES = {
  0: "The server does not answer. It may be restarting; this page keeps trying.",
  401: "This page needs the token that “taskmill web” printed.",
  403: "The server refused this: the page may only read.",
  404: "There is no such task or page here. Its history may have been pruned.",
  429: "Too many wrong tokens. Wait a minute, then try again.",
  502: "The server behind this address does not answer.",
  503: "The store does not answer at present. This page keeps trying.",
};

export const get = (path, params) => request("GET", path, params);

export const post = (path, body) => request("POST", path, undefined, body ?? {});

async function request(method, path, params, body) {
  const query = new URLSearchParams(pairs(params ?? {}));
  const address = `api/${path}${query.size ? `?${query}` : ""}`;
  let answer;
  try {
    answer = await fetch(address, {
      method,
      cache: "no-store",
      credentials: "same-origin",
      headers: body === undefined ? { Accept: "application/json" }
        : { Accept: "application/json", "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, SENTENCES[0]);
  }
  if (answer.status === 204) return null;
  const isJson = (answer.headers.get("Content-Type") ?? "").includes("json");
  const content = isJson ? await answer.json().catch(() => null) : null;
  if (answer.ok && isJson) return content;
  throw new ApiError(answer.status,
    said(content) ?? SENTENCES[answer.status] ?? `The server answered with the error ${answer.status}.`);
}

/** Return what an error of the API says, as a sentence. */
function said(content) {
  if (typeof content?.message !== "string" || content.message === "") return null;
  return `${sentence(content.message)}${/[.!?]$/.test(content.message) ? "" : "."}`;
}

/** Return names with values; a list is repeated, and what is not given is left out. */
function pairs(params) {
  return Object.entries(params).flatMap(([name, value]) => [value].flat().map((one) => [name, one]))
    .filter(([, value]) => value !== null && value !== undefined);
}
