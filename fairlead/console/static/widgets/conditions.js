// Conditions of an object: what the server says about it, in words.

import { h, prose } from "../core/dom.js";
import { sentence } from "../core/kinds.js";
import { ASLEEP, ATTENTION, FAILED, READY } from "../core/status.js";
import { timeElement } from "../core/time.js";
import { T } from "../texts/object.js";
import { stateBadge } from "./state.js";

// Conditions that are bad news when they are true.
const NEGATIVE = /^(Stalled|Degraded|Failed|.*Pressure|NetworkUnavailable|Reconciling|Progressing|CredentialExpires)$/;

function conditionState({ type, status, severity }) {
  if (status === "Unknown") return ASLEEP;
  if ((status === "True") !== NEGATIVE.test(type)) return READY;
  if (/^(Reconciling|Progressing)$/.test(type)) return "working";
  return severity === "Error" || type === "Stalled" || type === "Failed" ? FAILED : ATTENTION;
}

export function conditionList(conditions) {
  if (!Array.isArray(conditions) || !conditions.length) return h("p.muted", T.noConditions);
  return h(
    "ul.conditions",
    conditions
      .filter((each) => each?.type)
      .map((each) =>
        h(
          "li",
          stateBadge({ state: conditionState(each), word: T.conditionStates[each.status] ?? String(each.status) }),
          h(
            "div.stack.tight",
            h(
              "div",
              h("strong", { title: each.type }, sentence(String(each.type))),
              each.reason && h("span.muted.mono", ` ${each.reason}`),
            ),
            each.message && h("div.wrap", prose(String(each.message))),
          ),
          each.lastTransitionTime && h("span.muted.when", timeElement(each.lastTransitionTime)),
        ),
      ),
  );
}
