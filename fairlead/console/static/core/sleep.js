// Sleep mode of workspaces, spaces and virtual clusters: its annotations, and how its times are shown.

import { timeElement } from "./time.js";

export const SLEEP = "sleepmode.service.sh/";

export const HOLD_SECONDS = 7200;
const HOLD = `${SLEEP}hold-until`;

/**
 * @param {any} object
 * @param {string} name
 */
export const annotation = (object, name) => object.metadata.annotations?.[name] ?? "";

// A time in Unix seconds, as an element; false if it is none.
/** @param {any} seconds */
export const moment = (seconds) =>
  Number(seconds) > 0 && Number(seconds) < 1e11 && timeElement(new Date(Number(seconds) * 1000).toISOString());

// Until when it is held awake, in Unix seconds; 0 if it is not.
/** @param {any} object */
export function heldUntil(object) {
  const until = Number(annotation(object, HOLD)) || 0;
  return until * 1000 > Date.now() ? until : 0;
}

// The annotations that hold it awake for so many seconds from now, or end that.
/** @param {number} seconds */
export const holdFor = (seconds) => ({ [HOLD]: seconds ? String(Math.floor(Date.now() / 1000) + seconds) : null });
