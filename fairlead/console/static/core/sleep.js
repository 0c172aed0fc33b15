// Sleep mode of workspaces, spaces and virtual clusters: its annotations, and how its times are shown.

import { timeElement } from "./time.js";

export const SLEEP = "sleepmode.service.sh/";

export const annotation = (object, name) => object.metadata.annotations?.[name] ?? "";

// A time in Unix seconds, as an element; false if it is none.
export const moment = (seconds) =>
  Number(seconds) > 0 && Number(seconds) < 1e11 && timeElement(new Date(Number(seconds) * 1000).toISOString());
