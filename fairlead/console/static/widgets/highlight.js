// Colours for YAML, line by line. It decides nothing: the server parses.

import { h } from "../core/dom.js";

const LINE = /^(\s*)((?:- )*)(?:("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#:'"{[][^:#]*?)(:)(?=\s|$))?(\s*)(.*)$/;
const COMMENT = /(^|\s)#.*$/;
const LITERAL = /^(?:true|false|null|~|-?\d[\d.eE+-]*)$/;

function highlightLine(text) {
  const [, indent, dashes, key, colon = "", space, rest] = LINE.exec(text) ?? [];
  if (rest === undefined) return [text];
  const comment = /^["'|>]/.test(rest) ? null : COMMENT.exec(rest);
  const value = comment ? rest.slice(0, comment.index) : rest;
  return [
    indent,
    dashes && h("span.y-dash", dashes),
    key && h("span.y-key", key),
    colon,
    space,
    value && h(LITERAL.test(value.trim()) ? "span.y-literal" : "span.y-value", value),
    comment && h("span.y-comment", rest.slice(comment.index)),
  ];
}

// Renders lines into `node`, one element for each, and touches only those that changed since `before`.
export function renderLines(node, before, after) {
  let start = 0;
  let endBefore = before.length;
  let endAfter = after.length;
  while (start < endBefore && start < endAfter && before[start] === after[start]) start++;
  while (endBefore > start && endAfter > start && before[endBefore - 1] === after[endAfter - 1]) {
    endBefore--;
    endAfter--;
  }
  const old = [...node.children].slice(start, endBefore);
  const next = node.children[endBefore] ?? null;
  for (const each of old) each.remove();
  for (const line of after.slice(start, endAfter))
    node.insertBefore(h("div", highlightLine(line), line ? null : "\u200b"), next);
}
