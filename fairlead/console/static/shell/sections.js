// The navigation: sections of pages and kinds. Kinds that are in no section are listed under "Every kind". A page that
// `reads` a kind is only for those who may list it.

import { T } from "../texts/shell.js";

export const SECTIONS = [
  { title: "", entries: [{ page: "", title: T.overview, icon: "home", keys: "g o" }] },
  {
    title: T.work,
    entries: [
      { kind: "projects", icon: "folder", keys: "g p" },
      { kind: "devpodworkspaceinstances", icon: "terminal", keys: "g w" },
      { kind: "spaceinstances", icon: "box", keys: "g s" },
      { kind: "virtualclusterinstances", icon: "layers", keys: "g v" },
      { kind: "appinstances", icon: "package" },
      { kind: "projectsecrets", icon: "key" },
    ],
  },
  {
    title: T.fleet,
    entries: [
      { page: "map", title: T.map, icon: "layers", keys: "g f" },
      { kind: "clusters", icon: "server", keys: "g c" },
      { kind: "runners", icon: "play", keys: "g r" },
      { kind: "apps", icon: "grid", keys: "g a" },
      { kind: "spacetemplates", icon: "template" },
      { kind: "virtualclustertemplates", icon: "template" },
      { kind: "devpodworkspacetemplates", icon: "template" },
      { kind: "devpodenvironmenttemplates", icon: "template" },
      { kind: "devpodworkspacepresets", icon: "template" },
    ],
  },
  {
    title: T.people,
    entries: [
      { kind: "users", icon: "user", keys: "g u" },
      { kind: "teams", icon: "users", keys: "g t" },
      { kind: "ownedaccesskeys", icon: "key", keys: "g k" },
      { page: "access", title: T.mayI, icon: "shield", keys: "g m" },
    ],
  },
  {
    title: T.system,
    entries: [
      { page: "audit", title: T.audit, icon: "list", keys: "g l" },
      { kind: "events", group: "", icon: "bell", keys: "g e" },
      { page: "settings", title: T.settings, icon: "gear", reads: "configs" },
      { page: "kinds", title: T.everyKind, icon: "grid" },
      { page: "about", title: T.about, icon: "info" },
    ],
  },
];
