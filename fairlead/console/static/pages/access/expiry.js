// When an access key expires.

import { h } from "../../core/dom.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/access.js";

// The first administrator's key expires at this time, unless there is another way in by then.
const FIRST_KEY = "service.sh/expires-unless-replaced";

// When the TTL of a key ends, in milliseconds; Infinity for a key without one.
/** @param {KubernetesObject} key */
export function ttlEnd({ metadata, spec = {}, status = {} }) {
  const start = Date.parse((spec.ttlAfterLastActivity && status.lastActivity) || metadata.creationTimestamp);
  return spec.ttl ? start + spec.ttl * 1000 : Infinity;
}

export function expiry(key) {
  const { metadata, spec = {}, status = {} } = key;
  const first = Date.parse(metadata.annotations?.[FIRST_KEY]) || Infinity;
  const end = status.expired ?? Math.min(ttlEnd(key), first);
  const condition = end === first ? T.unlessReplaced : spec.ttlAfterLastActivity && T.sinceUse;
  return end === Infinity ? T.never : h("span", timeElement(new Date(end)), condition && ` (${condition})`);
}
