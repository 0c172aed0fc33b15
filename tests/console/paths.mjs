// Paths of objects whose names and kinds come from a hostile cluster. Prints "ok" or the first failure.
// Usage: node paths.mjs FOLDER-OF-THE-CONSOLE

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const requests = [];
const GATEWAY = "/kubernetes/cluster/hostile";
const PROJECT = "../../../../../../management/apis/management.service.sh/v1/projects/alpha";
const served = (group, version, resource) => ({
  metadata: { name: group },
  versions: [
    {
      version,
      resources: [{ resource, scope: "Namespaced", responseKind: { kind: "Pod" }, verbs: ["list", "delete"] }],
    },
  ],
});
const discovery = [
  served("", "v1", "pods"),
  served("a.example", "v1", "things"),
  served("", "v1", "../../../management/apis/management.service.sh/v1/projects"),
  served("../..", "v1", "pods"),
  served("a.example", "..", "pods"),
  served("", "v1", ".."),
];

globalThis.sessionStorage = { getItem: () => null };
globalThis.document = { cookie: "" };
globalThis.fetch = async (url, options) => {
  const { pathname } = new URL(url, "https://fairlead.example");
  requests.push(`${options?.method ?? "GET"} ${pathname}`);
  return new Response(JSON.stringify({ items: pathname.endsWith("/api") ? discovery : [] }), {
    headers: { "content-type": "application/json" },
  });
};

const { Server, deleteObject, getObject, patchObject } = await import(
  new URL("core/kinds.js", pathToFileURL(`${process.argv[2]}/`))
);
const server = await new Server(GATEWAY).load();
assert.deepEqual(
  server.kinds.map((kind) => kind.segment),
  ["pods", "things.a.example"],
);

const [pods] = server.kinds;
requests.length = 0;
const attempt = async (send) => {
  await send();
};
for (const name of [undefined, null, "", ".", "..", "a/b", PROJECT]) {
  await assert.rejects(
    attempt(() => deleteObject(pods, "web", name)),
    /is not the name of an object/,
    `delete ${name}`,
  );
  await assert.rejects(
    attempt(() => getObject(pods, "web", name)),
    /is not the name of an object/,
    `get ${name}`,
  );
  await assert.rejects(
    attempt(() => patchObject(pods, "web", name, {})),
    /is not the name of an object/,
    `patch ${name}`,
  );
  assert.throws(() => pods.pathOf({ metadata: { namespace: "web", name } }, "exec"), /is not the name of an object/);
  if (name) assert.throws(() => pods.path(name), /is not the name of an object/);
}
assert.deepEqual(requests, []);

await deleteObject(pods, "web", "front?x#y%2F");
assert.deepEqual(requests, [`DELETE ${GATEWAY}/api/v1/namespaces/web/pods/front%3Fx%23y%252F`]);
assert.equal(
  pods.pathOf({ metadata: { namespace: "web", name: "front" } }, "log"),
  `${GATEWAY}/api/v1/namespaces/web/pods/front/log`,
);
assert.equal(pods.path("web"), `${GATEWAY}/api/v1/namespaces/web/pods`);
assert.equal(pods.path(), `${GATEWAY}/api/v1/pods`);
console.log("ok");
