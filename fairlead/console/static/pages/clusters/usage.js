// CPU and memory in use over time, as metrics.k8s.io of a cluster measures them. It keeps no history, so the tab does:
// for a day, from when it has first asked.

import { request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { parseQuantity, printBytes } from "../../core/quantity.js";
import { T } from "../../texts/clusters.js";
import { mayDo } from "../../widgets/access.js";
import { definition, meter, tableOf } from "../../widgets/common.js";
import { minuteLabel, timePlot } from "../../widgets/plot.js";

const REFRESH = 30_000;
const DAY = 24 * 60 * 60 * 1000;
const LEAST = 10 * 60 * 1000; // of time in a picture
const MAX_ROWS = 60;
const MAX_HISTORIES = 32;
const METRICS = "metrics.k8s.io";
const GIB = 1024 ** 3;
const MIB = 1024 ** 2;
const histories = new Map(); // by path: {time, cpu, memory}

/**
 * Fills a node with the usage of all nodes, of the pods of a namespace, or of one pod, and keeps it current. The node
 * stays empty where the cluster does not measure, or does not tell the user.
 * @param {import("../../core/dom.js").Scope} scope
 * @param {any} server
 * @param {HTMLElement} node
 * @param {{plural: string, namespace?: string, name?: string, capacity?: () => {cpu: number, memory: number}}} what
 */
export async function followUsage(scope, server, node, { plural, namespace = "", name = "", capacity }) {
  const kind = server.find(plural, METRICS);
  if (!kind) return;
  const { allowed } = await mayDo({ verb: name ? "get" : "list", kind, namespace, name });
  if (!allowed || scope.ended) return;
  const path = name ? kind.path(namespace, name) : kind.path(namespace);
  const history = historyOf(path);
  let drawn = scope.child();
  const load = async () => {
    if (document.hidden) return;
    const answer = await request(path, { signal: scope.signal }).catch(() => null); // none yet, or not reachable now
    if (!answer || scope.ended) return;
    const now = Date.now();
    history.push({ time: now, ...sumOf(answer) });
    while (history[0].time < now - DAY) history.shift();
    drawn.end();
    drawn = scope.child();
    const isOpen = node.querySelector("details")?.open;
    replace(node, usageParts(drawn, history, capacity?.(), isOpen));
  };
  await load();
  scope.every(REFRESH, load);
}

function historyOf(path) {
  const history = histories.get(path) ?? [];
  histories.delete(path);
  histories.set(path, history);
  if (histories.size > MAX_HISTORIES) histories.delete(histories.keys().next().value);
  return history;
}

// Of nodes, of pods with their containers, or of one pod.
function sumOf(answer) {
  const usages = (answer.items ?? [answer]).flatMap((each) =>
    each.containers ? each.containers.map(({ usage }) => usage) : [each.usage],
  );
  const sum = (name) => usages.reduce((total, usage) => total + (parseQuantity(usage?.[name] ?? "0") || 0), 0);
  return { cpu: sum("cpu"), memory: sum("memory") };
}

function usageParts(scope, history, capacity, isOpen) {
  const { cpu, memory } = history.at(-1);
  const useGib = Math.max(...history.map((each) => each.memory)) >= 10 * GIB;
  return h(
    "div.stack.usage",
    definition([
      [T.cpuInUse, capacity?.cpu ? meter(cpu.toFixed(2), String(capacity.cpu), T.cores) : T.coresOf(cpu)],
      [
        T.memory,
        capacity?.memory
          ? meter((memory / GIB).toFixed(1), (capacity.memory / GIB).toFixed(1), "GiB")
          : printBytes(memory),
      ],
    ]),
    h(
      "div.halves",
      plotOf(scope, history, T.cpuTime, T.cores, ({ cpu: value }) => Math.round(value * 1000) / 1000),
      plotOf(
        scope,
        history,
        T.memoryTime,
        useGib ? "GiB" : "MiB",
        ({ memory: value }) => Math.round((value / (useGib ? GIB : MIB)) * 10) / 10,
      ),
    ),
    h("details", { open: isOpen }, h("summary", T.asTable), tableOfUsage(history)),
  );
}

function plotOf(scope, history, title, unit, read) {
  const to = history.at(-1).time;
  const points = history.map((each) => ({
    time: each.time,
    value: read(each),
    text: T.usageAt(minuteLabel(each.time), read(each), unit),
  }));
  return h(
    "div",
    h("h3", title),
    timePlot(scope, {
      step: REFRESH * 2,
      unit,
      from: Math.min(history[0].time, to - LEAST),
      to,
      points,
      summary: T.usageSummary(unit, points.at(-1).value, Math.max(...points.map((each) => each.value))),
      hint: T.usageHint,
    }),
  );
}

const tableOfUsage = (history) =>
  h(
    "div.day-table",
    { tabindex: "0", role: "region", "aria-label": T.usage },
    tableOf(
      T.usageColumns,
      history
        .slice(-MAX_ROWS)
        .toReversed()
        .map(({ time, cpu, memory }) =>
          h(
            "tr",
            h("th", { scope: "row" }, minuteLabel(time)),
            h("td", T.coresOf(cpu)),
            h("td", printBytes(Math.round(memory))),
          ),
        ),
    ),
  );
