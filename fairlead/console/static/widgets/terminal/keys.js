// What a terminal sends for keys, the mouse and pasted text.

const CURSOR = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const FUNCTION = { F1: "P", F2: "Q", F3: "R", F4: "S" };
const NUMBERED = {
  Insert: 2,
  Delete: 3,
  PageUp: 5,
  PageDown: 6,
  F5: 15,
  F6: 17,
  F7: 18,
  F8: 19,
  F9: 20,
  F10: 21,
  F11: 23,
  F12: 24,
};
const KEYPAD = {
  NumpadEnter: "M",
  NumpadMultiply: "j",
  NumpadAdd: "k",
  NumpadSubtract: "m",
  NumpadDivide: "o",
  NumpadDecimal: "n",
};
const CONTROL = {
  " ": 0,
  "@": 0,
  2: 0,
  "[": 27,
  3: 27,
  "\\": 28,
  4: 28,
  "]": 29,
  5: 29,
  "^": 30,
  6: 30,
  _: 31,
  "-": 31,
  "/": 31,
  7: 31,
  8: 127,
  "?": 127,
};

// The bytes for a keydown event, as text; null if the key means nothing here, or if the text comes with an input event.
export function encodeKey(event, modes) {
  const { key, ctrlKey, altKey, shiftKey } = event;
  if (event.isComposing || event.keyCode === 229 || event.metaKey) return null;
  const modifier = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
  const escaped = (text) => (altKey ? `\x1b${text}` : text);
  if (modes.applicationKeypad && KEYPAD[event.code] && !event.getModifierState("NumLock"))
    return `\x1bO${KEYPAD[event.code]}`;
  if (CURSOR[key])
    return modifier > 1
      ? `\x1b[1;${modifier}${CURSOR[key]}`
      : `\x1b${modes.applicationCursor ? "O" : "["}${CURSOR[key]}`;
  if (FUNCTION[key]) return modifier > 1 ? `\x1b[1;${modifier}${FUNCTION[key]}` : `\x1bO${FUNCTION[key]}`;
  if (NUMBERED[key]) return `\x1b[${NUMBERED[key]}${modifier > 1 ? `;${modifier}` : ""}~`;
  if (key === "Enter") return escaped(modes.newLine ? "\r\n" : "\r");
  if (key === "Backspace") return escaped(ctrlKey ? "\b" : "\x7f");
  if (key === "Tab") return shiftKey ? "\x1b[Z" : "\t";
  if (key === "Escape") return escaped("\x1b");
  if ([...key].length !== 1) return null;
  if (event.getModifierState("AltGraph")) return key;
  if (!ctrlKey) return escaped(key);
  const code = /^[a-z]$/i.test(key) ? key.toLowerCase().charCodeAt(0) & 31 : CONTROL[key];
  return code === undefined ? null : escaped(String.fromCharCode(code));
}

// `kind` is "down", "up", "move" or "wheel"; column and row count from 0.
export function encodeMouse(kind, event, column, row, modes) {
  const isDrag = kind === "move" && event.buttons > 0;
  if (
    !(modes.mouseMoves || (modes.mouseDrags && (kind !== "move" || isDrag)) || (modes.mouseClicks && kind !== "move"))
  )
    return null;
  let button =
    kind === "wheel"
      ? event.deltaY < 0
        ? 64
        : 65
      : kind === "move"
        ? (isDrag ? Math.log2(event.buttons & -event.buttons) : 3) + 32
        : event.button;
  if (kind === "up" && !modes.mouseSgr) button = 3;
  button += (event.shiftKey ? 4 : 0) + (event.altKey ? 8 : 0) + (event.ctrlKey ? 16 : 0);
  if (modes.mouseSgr) return `\x1b[<${button};${column + 1};${row + 1}${kind === "up" ? "m" : "M"}`;
  return column < 95 && row < 95 ? `\x1b[M${String.fromCharCode(32 + button, 33 + column, 33 + row)}` : null;
}

// The end mark of a bracketed paste inside of the text would let the rest count as typed.
export function encodePaste(text, modes) {
  const typed = text.replace(/\r?\n/g, "\r");
  return modes.bracketedPaste ? `\x1b[200~${typed.replaceAll("\x1b", "")}\x1b[201~` : typed;
}
