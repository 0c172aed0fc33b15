// The page that creates an object of a kind: one of its own, or the form of all fields, which `?form=all` chooses.
// Forms and the code for schemas are loaded only where they are shown.

const createInstance = () => import("./instances/create.js");

const OWN = {
  appinstances: createInstance,
  clusters: () => import("./clusters/connect.js"),
  devpodworkspaceinstances: createInstance,
  ownedaccesskeys: () => import("./access/key-create.js"),
  spaceinstances: createInstance,
  virtualclusterinstances: createInstance,
};

export async function show(page, place) {
  const load = page.query.get("form") !== "all" && OWN[place.kind.segment];
  return (await (load ? load() : import("./create.js"))).show(page, place);
}
