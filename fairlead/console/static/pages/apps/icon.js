// The icon of an app. The console loads nothing from elsewhere: images are shown if they are part of the object, others
// are replaced by the first letter.

import { h } from "../../core/dom.js";

const IMAGE = /^data:image\/(png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=]+$/;

/** @param {KubernetesObject} app */
export function appIcon({ metadata, spec = {} }) {
  if (IMAGE.test(spec.icon ?? "")) return h("img.app-icon", { src: spec.icon, alt: "" });
  return h("span.app-icon", { "aria-hidden": "true" }, (spec.displayName || metadata.name).charAt(0).toUpperCase());
}
