// Renders a small part of Markdown: headings, paragraphs, lists, code, emphasis and https links. HTML stays text.

import { externalLink, h } from "../core/dom.js";

const MAX_LENGTH = 200_000;
const FENCE = "\x60\x60\x60";
const INLINE = /(\x60[^\x60]+\x60)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*|_[^_\s][^_]*_)|\[([^\]]+)\]\(([^)\s]+)\)/;

export function markdown(text) {
  const node = h("div.markdown");
  const lines = String(text).slice(0, MAX_LENGTH).split(/\r?\n/);
  while (lines.length) node.append(...block(lines));
  return node;
}

function block(lines) {
  const line = lines.shift();
  if (!line.trim()) return [];
  if (line.startsWith(FENCE)) return [h("pre", takeUntil(lines, (each) => each.startsWith(FENCE), true).join("\n"))];
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) return [h(`h${Math.min(6, heading[1].length + 1)}`, inline(heading[2]))];
  const marker = /^\s*([-*+]|\d+[.)])\s+/;
  if (marker.test(line)) {
    const items = [line, ...takeUntil(lines, (each) => !marker.test(each))];
    return [
      h(
        /^\s*\d/.test(line) ? "ol" : "ul",
        items.map((item) => h("li", inline(item.replace(marker, "")))),
      ),
    ];
  }
  const rest = takeUntil(
    lines,
    (each) => !each.trim() || /^#{1,6}\s/.test(each) || each.startsWith(FENCE) || marker.test(each),
  );
  return [h("p", inline([line, ...rest].join(" ")))];
}

function takeUntil(lines, ends, dropLast = false) {
  const taken = [];
  while (lines.length && !ends(lines[0])) taken.push(lines.shift());
  if (dropLast) lines.shift();
  return taken;
}

function inline(text) {
  const parts = [];
  for (let rest = text; rest; ) {
    const found = INLINE.exec(rest);
    if (!found) {
      parts.push(rest);
      break;
    }
    const [all, code, strong, emphasis, label, url] = found;
    parts.push(
      rest.slice(0, found.index),
      code
        ? h("code", code.slice(1, -1))
        : strong
          ? h("strong", strong.slice(2, -2))
          : emphasis
            ? h("em", emphasis.slice(1, -1))
            : externalLink(url, label),
    );
    rest = rest.slice(found.index + all.length);
  }
  return parts;
}
