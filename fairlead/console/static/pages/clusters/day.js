// The probes of a cluster in the last day: how long they took, and how many failed.

import { h, replace } from "../../core/dom.js";
import { T } from "../../texts/clusters.js";
import { tableOf } from "../../widgets/common.js";
import { minuteLabel, timePlot } from "../../widgets/plot.js";

const QUARTER = 900_000;
const DAY = 24 * 60 * 60 * 1000;

// A node, and `show(health)` with a ClusterHealth. The picture is not drawn again while it would be the same.
export function dayOfProbes(scope) {
  const node = h("div.stack");
  let shown = "";
  const show = ({ day = [] }) => {
    const key = JSON.stringify(day);
    if (key === shown) return;
    shown = key;
    if (!day.length) return replace(node, h("p.muted", T.noDay));
    const isOpen = node.querySelector("details")?.open;
    const to = Date.parse(day.at(-1).time) + QUARTER;
    const points = day.map(pointOf);
    replace(
      node,
      timePlot(scope, {
        step: QUARTER,
        unit: "ms",
        from: to - DAY,
        to,
        points,
        summary: summaryOf(day),
        hint: T.dayHint,
      }),
      h("details", { open: isOpen }, h("summary", T.asTable), tableOfDay(day)),
    );
  };
  return { node, show };
}

function pointOf(quarter) {
  return {
    time: Date.parse(quarter.time) + QUARTER / 2,
    value: quarter.latencyMilliseconds ?? null,
    high: quarter.maxLatencyMilliseconds ?? null,
    failures: quarter.failed / quarter.probes,
    text: T.quarter(minuteLabel(Date.parse(quarter.time)), quarter),
  };
}

function summaryOf(day) {
  const probes = day.reduce((sum, quarter) => sum + quarter.probes, 0);
  const failed = day.reduce((sum, quarter) => sum + quarter.failed, 0);
  const longest = Math.max(...day.map((quarter) => quarter.maxLatencyMilliseconds ?? 0));
  return T.daySummary({ probes, failed, longest });
}

const tableOfDay = (day) =>
  h(
    "div.day-table",
    { tabindex: "0", role: "region", "aria-label": T.day },
    tableOf(
      T.dayColumns,
      day
        .toReversed()
        .map((quarter) =>
          h(
            "tr",
            h("th", { scope: "row" }, minuteLabel(Date.parse(quarter.time))),
            h(
              "td",
              quarter.latencyMilliseconds === undefined ? T.noLatency : T.milliseconds(quarter.latencyMilliseconds),
            ),
            h(
              "td",
              quarter.maxLatencyMilliseconds === undefined
                ? T.noLatency
                : T.milliseconds(quarter.maxLatencyMilliseconds),
            ),
            h("td", String(quarter.probes)),
            h("td", String(quarter.failed)),
          ),
        ),
    ),
  );
