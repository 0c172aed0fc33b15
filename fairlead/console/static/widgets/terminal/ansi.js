// Text with colours, for logs: SGR sequences become styles, and all others are removed.

import { applySgr, PLAIN, parseParameters } from "./styles.js";

const SEQUENCE =
  /\x1b(?:\[([0-?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?|[\0-\x08\x0a-\x1f\x7f-\x9f]/g;
const hasControls = (text) => /[\0-\x08\x0a-\x1f\x7f-\x9f]/.test(text);

export const plainText = (text) => (hasControls(text) ? text.replace(SEQUENCE, "") : text);

// The text as [text, style].
export function styledRuns(text) {
  if (!hasControls(text)) return [[text, PLAIN]];
  const runs = [];
  let style = PLAIN;
  let start = 0;
  for (const found of text.matchAll(SEQUENCE)) {
    if (found.index > start) runs.push([text.slice(start, found.index), style]);
    start = found.index + found[0].length;
    if (found[2] === "m" && /^[0-9;:]*$/.test(found[1])) style = applySgr(style, parseParameters(found[1]));
  }
  if (start < text.length) runs.push([text.slice(start), style]);
  return runs;
}

// The part of runs between two columns of the text.
export function sliceRuns(runs, start, end) {
  let position = 0;
  return runs.flatMap(([text, style]) => {
    const part = text.slice(Math.max(0, start - position), Math.max(0, end - position));
    position += text.length;
    return part ? [[part, style]] : [];
  });
}
