// A cluster behind a gateway, as a server of kinds. It is asked as the user, with the rights of the user in the
// cluster.

import { ApiError, request } from "../../core/api.js";
import { ROOT } from "../../core/base.js";
import { getObject, managed, Server } from "../../core/kinds.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/clusters.js";

const LIFETIME = 300_000;
const MAX_KNOWN = 8;
const TIMEOUT_SECONDS = 15;
const GATEWAYS = { spaceinstances: "space", virtualclusterinstances: "virtualcluster" };
const known = new Map();

const workload = () => import("./workload.js");
const VIEWS = {
  namespaces: () => import("./namespace.js"),
  pods: () => import("./pod.js"),
  "deployments.apps": workload,
  "statefulsets.apps": workload,
  "daemonsets.apps": workload,
  "replicasets.apps": workload,
  "jobs.batch": workload,
};

// `owner` is the path of a cluster, space or virtual cluster in the console, such as ["clusters", "eu-1"].
export async function openRemote(owner, signal) {
  const pages = `${owner.map(encodeURIComponent).join("/")}/~browse/`;
  const found = known.get(pages);
  if (found && performance.now() < found.expires) return found.server;
  const server = new Server(rootOf(owner));
  const limit = AbortSignal.timeout(TIMEOUT_SECONDS * 1000);
  const both = AbortSignal.any([signal, limit]);
  try {
    if (owner[0] === "spaceinstances") server.namespace = await namespaceOfSpace(owner, both);
    await loadKinds(server, both);
  } catch (error) {
    if (limit.aborted && !signal.aborted) throw new ApiError({ code: 504, message: T.timedOut(TIMEOUT_SECONDS) });
    throw error;
  }
  Object.assign(server, { pages, views: VIEWS, isRemote: true });
  known.set(pages, { server, expires: performance.now() + LIFETIME });
  if (known.size > MAX_KNOWN) known.delete(known.keys().next().value);
  return server;
}

function rootOf([segment, ...names]) {
  const [name, namespace] = [...names].reverse();
  const path = namespace ? `project/${encodeURIComponent(projectOf(namespace))}/${GATEWAYS[segment]}` : "cluster";
  return new URL(`kubernetes/${path}/${encodeURIComponent(name)}`, ROOT).pathname;
}

async function namespaceOfSpace([segment, namespace, name], signal) {
  const { spec } = await getObject(managed(segment), namespace, name, { signal });
  return spec?.clusterRef?.namespace ?? "";
}

// Errors of discovery are plain text, for kubectl. The version has them as a Status.
async function loadKinds(server, signal) {
  try {
    await server.load(signal);
  } catch (error) {
    await request(`${server.root}/version`, { signal });
    throw error;
  }
}
