// The program of a user agent, as people call it.

import { T } from "../texts/list.js";

// "Mozilla/5.0 (X11; Linux x86_64) ... Firefox/140.0" -> "Firefox on Linux"
export function describeClient(text = "") {
  const browser = text.match(/(Edg|OPR|Firefox|Chrome|Chromium|Safari)\b/)?.[1];
  const system = text.match(/(Windows|Mac OS|Android|iPhone|iPad|CrOS|Linux)/)?.[1];
  if (text.includes("Mozilla/")) return T.browser({ Edg: "Edge", OPR: "Opera" }[browser] ?? browser, system);
  return text;
}

// Logins are named after what signed in; of a browser that is its user agent.
export const describeLogin = (text) =>
  text.replace(/^(Login with )(.+)$/s, (_, start, agent) => start + describeClient(agent));
