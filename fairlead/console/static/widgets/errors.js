// Errors, beside their cause: reason, message, causes with their fields, audit ID, and what to do next.

import { ApiError, NetworkError } from "../core/api.js";
import { h, prose } from "../core/dom.js";
import { link } from "../core/router.js";
import { T } from "../texts/shell.js";
import { button } from "./common.js";

const RETRY_SECONDS = 3;

/**
 * @param {any} error
 * @param {{retry?: () => void}} options
 */
export function errorBlock(error, { retry } = {}) {
  if (error instanceof NetworkError) return goOn(block(T.unreachable, [], retry), retry);
  if (!(error instanceof ApiError)) return block(T.internal, [h("pre", String(error?.stack ?? error))], retry);
  const parts = [
    T.reasons[error.reason] && h("p", T.reasons[error.reason]),
    causeList(error.causes),
    error.auditId &&
      h(
        "p.muted",
        `${T.auditId}: `,
        h("code", error.auditId),
        " ",
        error.code === 403 && link(`audit/${error.auditId}`, T.why),
      ),
  ];
  return block(sentence(error.message), parts, error.code >= 500 || error.code === 429 ? retry : null);
}

// A part of a page that could not be loaded is loaded when the server is back, as the text says.
function goOn(node, retry) {
  const timer = retry && setInterval(() => attempt(), RETRY_SECONDS * 1000);
  const attempt = () => {
    if (document.hidden) return;
    clearInterval(timer);
    if (node.isConnected) retry();
  };
  return node;
}

const block = (title, parts, retry) =>
  h(
    "section.error",
    { role: "alert" },
    h("p.error-title", prose(title)),
    parts,
    retry && button(T.retry, { onclick: retry }),
  );

export const causeList = (causes) =>
  causes.length > 0 &&
  h(
    "ul.causes",
    causes.map((cause) =>
      h("li", cause.field && h("code", cause.field), cause.field && ": ", prose(cause.message ?? "")),
    ),
  );

export const sentence = (text) => (text ? text.charAt(0).toUpperCase() + text.slice(1) : "");
