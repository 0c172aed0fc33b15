// What the user may do: access reviews, many in one request, remembered for half a minute.
//
// A review that failed says nothing. Then the action is offered, and the server decides.

import { request } from "./api.js";
import { API, GROUP } from "./base.js";

const LIFETIME = 30_000;
const MAX_BATCH = 200;
const MAX_NAMESPACES = 51;
const PATH = `${API}/apis/${GROUP}/v1/selfsubjectaccessreviewbatches`;
const UNKNOWN = { allowed: true, filtered: false, reason: "", isUnknown: true };

const answers = new Map();
/** @type {{attributes: object, resolve: (answer: any) => void}[]} */
let waiting = [];

// `question` is {verb, kind, namespace, name, subresource}; or {verb, path} for a path that is no resource.
// Resolves to {allowed, filtered, reason, isUnknown}.
/**
 * @param {Question} question
 * @returns {Promise<{allowed: boolean, filtered: boolean, reason: string, isUnknown?: boolean}>}
 */
export function review(question) {
  const attributes = attributesOf(question);
  const key = JSON.stringify(attributes);
  const known = answers.get(key);
  if (known && performance.now() < known.expires) return known.answer;
  forgetExpired();
  const answer = new Promise((resolve) => waiting.push({ attributes, resolve }));
  answers.set(key, { answer, expires: performance.now() + LIFETIME });
  if (waiting.length === 1) setTimeout(send, 5);
  return answer;
}

/**
 * @param {string} verb
 * @param {any} kind
 * @param {string} namespace
 * @param {string} name
 * @param {string} subresource
 */
export const can = async (verb, kind, namespace = "", name = "", subresource = "") =>
  (await review({ verb, kind, namespace, name, subresource })).allowed;

// Whether a kind can be created in one of these namespaces; "" is everywhere. Returns the first question that was
// answered with yes, or else the first one.
/**
 * @param {any} kind
 * @param {string[]} namespaces
 */
export async function reviewCreate(kind, namespaces) {
  const questions = namespaces.slice(0, MAX_NAMESPACES).map((namespace) => ({ verb: "create", kind, namespace }));
  const answers = await Promise.all(questions.map(review));
  const index = answers.findIndex((answer) => answer.allowed);
  return { allowed: index >= 0, question: questions[Math.max(0, index)], reason: answers[0].reason };
}

// Each object that was shown has questions of its own, so a tab that stays open would collect them.
function forgetExpired() {
  const now = performance.now();
  for (const [key, { expires }] of answers) if (expires <= now) answers.delete(key);
}

export const forgetReviews = () => answers.clear();

/** @param {Question} question */
function attributesOf({ verb, kind, namespace, name, subresource, path }) {
  if (path) return { nonResourceAttributes: { path, verb } };
  /** @type {ResourceAttributes} */
  const attributes = { verb, group: kind.group, version: kind.version, resource: kind.plural };
  if (namespace) attributes.namespace = namespace;
  if (name) attributes.name = name;
  if (subresource) attributes.subresource = subresource;
  return { resourceAttributes: attributes };
}

function send() {
  const all = waiting;
  waiting = [];
  for (let start = 0; start < all.length; start += MAX_BATCH) ask(all.slice(start, start + MAX_BATCH));
}

/** @param {typeof waiting} batch */
async function ask(batch) {
  /** @type {any[]} */
  let reviews = [];
  try {
    const spec = { reviews: batch.map((each) => each.attributes) };
    const body = { apiVersion: `${GROUP}/v1`, kind: "SelfSubjectAccessReviewBatch", spec };
    reviews = (await request(PATH, { method: "POST", body })).status.reviews;
  } catch {
    answers.clear();
  }
  batch.forEach((each, index) => {
    const found = reviews[index];
    const isFiltered = Boolean(found?.filtered); // a list of what the user may see
    each.resolve(
      found ? { allowed: found.allowed || isFiltered, filtered: isFiltered, reason: found.reason ?? "" } : UNKNOWN,
    );
  });
}

// Disables a control until it is known to be permitted. A click meanwhile counts once that is known. A refused control
// says why, and can still be focused to read it.
/**
 * @param {any} control
 * @param {Question} question
 * @param {string} [explain]
 */
export async function guard(control, question, explain) {
  let isPending = true;
  let wasClicked = false;
  const stop = (/** @type {Event} */ event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    wasClicked ||= isPending;
  };
  control.setAttribute("aria-disabled", "true");
  control.addEventListener("click", stop, { capture: true });
  const answer = await review(question);
  isPending = false;
  if (answer.allowed) {
    control.removeAttribute("aria-disabled");
    control.removeEventListener("click", stop, { capture: true });
    if (wasClicked && control.isConnected) control.click();
    return true;
  }
  control.title = explain ?? answer.reason ?? "";
  return false;
}

window.addEventListener("focus", forgetReviews);
