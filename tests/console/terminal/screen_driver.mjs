// Feeds a Screen with the steps of a test, and prints what it shows after each. Input and output are JSON.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { Screen } = await import(pathToFileURL(`${process.argv[2]}/widgets/terminal/screen.js`));
const { columns, rows, clipboard, steps } = JSON.parse(readFileSync(0));
const screen = new Screen(columns, rows);
const events = { replies: [], titles: [], bells: 0, copied: [] };
screen.onReply = (text) => events.replies.push(text);
screen.onTitle = (text) => events.titles.push(text);
screen.onBell = () => {
  events.bells++;
};
if (clipboard) screen.onClipboard = (text) => events.copied.push(text);
const results = [];
for (const step of steps) {
  if (step.resize) screen.resize(...step.resize);
  if (step.bytes) screen.write(Buffer.from(step.bytes, "base64"));
  results.push({
    lines: screen.text(),
    cursor: [screen.x + (screen.wrapNext ? 1 : 0), screen.y],
    runs: screen.lines[0].runs().map(([text, { fg, bg, flags, link }]) => [text, fg, bg, flags, link]),
    history: screen.history.map((line) => line.text()),
    dropped: screen.dropped,
    modes: screen.modes,
    shape: screen.cursorShape,
    isAlternate: screen.isAlternate,
  });
}
process.stdout.write(JSON.stringify({ events, results }));
