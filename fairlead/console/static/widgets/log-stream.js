// Reads a log from the server into a LogView, and goes on where it was after a lost connection.

import { ApiError, pause, query, request } from "../core/api.js";
import { readLines } from "../core/watch.js";
import { T } from "../texts/terminal.js";

const MAX_WAIT_SECONDS = 15;

// The log of a pod. Its lines have timestamps, from which it goes on; lines that were seen already are skipped.
const podFormat = () => {
  let last = "";
  return {
    timestamps: true,
    parameters: (follow) => ({ follow, timestamps: true, sinceTime: last.replace(/\.\d+/, "") }),
    read(line, view) {
      const time = line.slice(0, line.indexOf(" "));
      if (time && time <= last) return;
      last = time || last;
      view.append(`${line}\n`);
    },
  };
};

// The log of a task of a workspace: JSON lines with bytes, which are JSON lines themselves, and the offset to go on
// from.
const taskFormat = () => {
  const decoder = new TextDecoder();
  let offset = 0;
  let rest = "";
  return {
    timestamps: true,
    parameters: (follow) => ({ follow, offset }),
    read(line, view) {
      const entry = JSON.parse(line);
      if (entry.type === 6) return;
      offset = entry.offset ?? offset;
      const lines = (
        rest +
        decoder.decode(
          Uint8Array.from(atob(entry.bytes), (each) => each.charCodeAt(0)),
          { stream: true },
        )
      ).split("\n");
      rest = lines.pop();
      for (const each of lines) view.append(`${readMessage(each)}\n`);
    },
  };
};

// The time and the message of a line; the time is empty if the line is plain text.
function readMessage(line) {
  try {
    const { time = "", message = line } = JSON.parse(line);
    return `${time} ${message}`;
  } catch {
    return ` ${line}`;
  }
}

const FORMATS = { pod: podFormat, task: taskFormat };

export async function readStream(view, path, scope, { format = "pod", follow = true } = {}) {
  const reading = FORMATS[format]();
  view.hasTimestamps = reading.timestamps ?? false;
  for (let wait = 1; !scope.ended; wait = Math.min(wait * 2, MAX_WAIT_SECONDS)) {
    try {
      const suffix = query(reading.parameters(follow || null));
      const response = await request(path + (path.includes("?") ? suffix.replace("?", "&") : suffix), {
        as: "response",
        accept: "*/*",
        signal: scope.signal,
      });
      view.showNote("");
      for await (const line of readLines(response.body)) {
        wait = 1;
        reading.read(line, view);
      }
      view.showNote(T.ended);
      return;
    } catch (error) {
      if (scope.ended) return;
      if (error instanceof ApiError && error.code < 500 && error.code !== 429) throw error;
      view.showNote(T.resuming);
    }
    await pause(wait, scope.signal).catch(() => {});
  }
}
