// Names of quotas, as people say them.

import { managed } from "../core/kinds.js";
import { T } from "../texts/object.js";

// "spaceinstances.active" -> "Spaces, awake"
export function quotaTitle(name) {
  const [plural, part] = name.split(".");
  return (managed(plural)?.pluralTitle ?? name) + (part === "active" ? T.awake : "");
}
