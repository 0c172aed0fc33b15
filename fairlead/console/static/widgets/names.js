// Names as people know them: the display name of a user or project, or the title of a kind, stands for its name.

import { can } from "../core/access.js";
import { listObjects, managed, management } from "../core/kinds.js";

const LIMIT = 500;

const isSame = (text) => (each) => each?.toLowerCase() === text.toLowerCase();

// The name of the object that has this name or display name. A text that stands for none is returned as it is.
export async function findName(plural, text, signal) {
  const kind = managed(plural);
  if (!text || text === "*" || !(await can("list", kind))) return text;
  const { items } = await listObjects(kind, { limit: LIMIT, signal }).catch(() => ({ items: [] }));
  if (items.some((each) => each.metadata.name === text)) return text;
  return (
    items.find(({ spec = {} }) => [spec.displayName, spec.username, spec.email].some(isSame(text)))?.metadata.name ??
    text
  );
}

// The kind with this plural name, segment, kind or title: "Workspaces" is devpodworkspaceinstances.
export const findKind = (text) =>
  management.findSegment(text) ??
  management.find(text) ??
  management.kinds.find(
    (kind) => kind.isListed && [kind.plural, kind.kind, kind.title, kind.pluralTitle].some(isSame(text)),
  );
