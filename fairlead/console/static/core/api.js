// Requests to the server, with the login cookie of the browser.
//
// An ended login does not fail a request: the request waits until the user has signed in again, over the open page.

import { CONSOLE, ROOT } from "./base.js";

const MAX_RETRIES = 3;
const MAX_WAIT_SECONDS = 10;
const SECOND_ATTEMPT_AFTER = 0.5; // seconds

// An error response: the Status of the server, and what is needed to find it in the audit log.
export class ApiError extends Error {
  /**
   * @param {any} status
   * @param {Response} [response]
   */
  constructor(status, response) {
    super(status.message || `the server responded with ${status.code}`);
    this.status = status;
    this.code = status.code ?? response?.status ?? 0;
    this.reason = status.reason ?? "";
    this.causes = status.details?.causes ?? [];
    this.auditId = response?.headers.get("audit-id") ?? "";
    this.retryAfter = Number(response?.headers.get("retry-after") ?? status.details?.retryAfterSeconds ?? 0);
  }
}

export class NetworkError extends Error {}

const ACT_AS = "fairlead.act-as";

export const session = {
  /** @type {any} */
  user: null,
  actAs: sessionStorage.getItem(ACT_AS) ?? "", // another user, whom this tab impersonates
  /** @type {(warnings: string[]) => void} */
  warn: () => {}, // set by shell/shell.js
  /** @type {(signal?: AbortSignal) => Promise<unknown>} */
  renew: async () => {
    throw new Error("no sign-in page is installed");
  }, // set by shell/sign-in.js
};

// Impersonates another user in this tab; "" ends it. The page is loaded again, so nothing of one user is shown to the
// other.
/** @param {string} name */
export function actAs(name) {
  if (name) sessionStorage.setItem(ACT_AS, name);
  else sessionStorage.removeItem(ACT_AS);
  location.assign(new URL("./", CONSOLE));
}

// `body` is an object (sent as JSON) or a string (with `type`). `as` is what to return: "json", "text" or "response".
// `onWarnings` gets the warnings of the response, if there are any; without it they are shown as notices.
/**
 * @param {string} path
 * @param {RequestOptions} options
 * @returns {Promise<any>}
 */
export async function request(
  path,
  { method = "GET", body, type, accept, headers, signal, as = "json", anonymous = false, onWarnings } = {},
) {
  /** @type {RequestInit & {headers: Record<string, string>}} */
  const options = {
    method,
    signal,
    headers: { ...headers },
    credentials: "same-origin",
    redirect: "error",
    cache: "no-store",
  };
  if (body !== undefined) {
    options.body = typeof body === "string" ? body : JSON.stringify(body);
    options.headers["content-type"] = type ?? "application/json";
  }
  if (session.actAs && !path.startsWith("auth/")) options.headers["impersonate-user"] = session.actAs;
  options.headers.accept = accept ?? "application/json";
  for (let attempt = 1; ; attempt++) {
    const response = await send(path, options).catch(async (error) => {
      if (!(error instanceof NetworkError) || method !== "GET") throw error;
      await pause(SECOND_ATTEMPT_AFTER, signal); // a network that changes breaks all connections off
      return send(path, options);
    });
    if (response.ok) {
      const warnings = warningsOf(response);
      if (warnings.length && method !== "GET") (onWarnings ?? session.warn)(warnings);
      return read(response, as);
    }
    const error = new ApiError(await readStatus(response), response);
    if (error.code === 401 && !anonymous) await session.renew(signal);
    else if (error.code === 429 && attempt < MAX_RETRIES && error.retryAfter <= MAX_WAIT_SECONDS)
      await pause(error.retryAfter || 1, signal);
    else throw error;
  }
}

// 299 - "text", for each warning.
/** @param {Response} response */
const warningsOf = (response) =>
  [...(response.headers.get("warning") ?? "").matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text]) =>
    text.replace(/\\(.)/g, "$1"),
  );

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function send(path, options) {
  try {
    return await fetch(path.startsWith("/") ? path : new URL(path, ROOT), options);
  } catch (error) {
    if (error instanceof Error && error.name === "AbortError") throw error;
    throw new NetworkError("the server cannot be reached");
  }
}

/**
 * @param {Response} response
 * @param {string} as
 */
async function read(response, as) {
  if (as === "response") return response;
  const text = await response.text();
  if (as === "text") return text;
  return text ? JSON.parse(text) : null;
}

/** @param {Response} response */
async function readStatus(response) {
  const text = await response.text().catch(() => "");
  try {
    const status = JSON.parse(text);
    if (status && typeof status === "object")
      return { ...status, code: response.status, message: status.message ?? status.error };
  } catch {
    /* not JSON: a proxy's page */
  }
  return { code: response.status, message: `${response.status} ${response.statusText || "error"}`.trim() };
}

/**
 * @param {number} seconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** @param {Record<string, any>} parameters */
export const query = (parameters) => {
  const entries = Object.entries(parameters).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  return entries.length ? `?${new URLSearchParams(entries)}` : "";
};
