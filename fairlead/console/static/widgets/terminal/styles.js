// Colours and attributes of terminal text, and the sequences (SGR) that set them. Used by the terminal and by logs.

const BOLD = 1;
const DIM = 2;
const ITALIC = 4;
const UNDERLINE = 8;
const INVERSE = 16;
const STRIKE = 32;
const HIDDEN = 64;
const SET = { 1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE, 8: HIDDEN, 9: STRIKE, 21: UNDERLINE };
const CLEAR = { 22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE, 27: INVERSE, 28: HIDDEN, 29: STRIKE };
const MAX_KNOWN = 4096;

// `fg` and `bg` are null (the default), a number of the palette, or "#rrggbb".
export const PLAIN = Object.freeze({ fg: null, bg: null, flags: 0, link: "" });
let known = new Map();

// One object for each combination, so that equal styles are usually the same object. Programs can make up more than
// fit.
export function styleOf(fg, bg, flags, link) {
  if (fg === null && bg === null && !flags && !link) return PLAIN;
  const key = `${fg} ${bg} ${flags} ${link}`;
  let style = known.get(key);
  if (!style) {
    if (known.size >= MAX_KNOWN) known = new Map();
    known.set(key, (style = Object.freeze({ fg, bg, flags, link })));
  }
  return style;
}

// The style after an SGR sequence. `parameters` is a list of lists: parameters, and their parts between colons.
export function applySgr(style, parameters) {
  let { fg, bg, flags } = style;
  for (let index = 0; index < parameters.length; index++) {
    const [code, part] = parameters[index];
    if (code === 0) [fg, bg, flags] = [null, null, 0];
    else if (code === 4 && part === 0) flags &= ~UNDERLINE;
    else if (SET[code]) flags |= SET[code];
    else if (CLEAR[code]) flags &= ~CLEAR[code];
    else if (code >= 30 && code <= 37) fg = code - 30;
    else if (code >= 40 && code <= 47) bg = code - 40;
    else if (code >= 90 && code <= 97) fg = code - 82;
    else if (code >= 100 && code <= 107) bg = code - 92;
    else if (code === 39) fg = null;
    else if (code === 49) bg = null;
    else if (code === 38 || code === 48 || code === 58) {
      const [color, used] = readColor(parameters, index);
      index += used;
      if (code === 38) fg = color ?? fg;
      if (code === 48) bg = color ?? bg;
    }
  }
  return styleOf(fg, bg, flags, style.link);
}

// 38;5;N, 38;2;R;G;B and the forms with colons. Returns the color, and how many more parameters it took.
function readColor(parameters, index) {
  const parts = parameters[index];
  const usesColons = parts.length > 1;
  const values = usesColons ? parts.slice(1) : parameters.slice(index + 1, index + 5).map(([value]) => value);
  const used = (count) => (usesColons ? 0 : Math.min(count, values.length));
  if (values[0] === 5) return [values[1] <= 255 ? values[1] : null, used(2)];
  if (values[0] !== 2) return [null, used(1)];
  const rgb = usesColons && values.length > 4 ? values.slice(2, 5) : values.slice(1, 4);
  const valid = rgb.length === 3 && rgb.every((value) => value <= 255);
  return [valid ? `#${rgb.map((value) => value.toString(16).padStart(2, "0")).join("")}` : null, used(4)];
}

export const parseParameters = (text) =>
  text.split(";", 32).map((each) => each.split(":", 8).map((part) => Math.min(Number(part) || 0, 65535)));

const LEVELS = [0, 95, 135, 175, 215, 255];
// A color as CSS. The first 16 are custom properties, so that they fit the theme.
function cssColor(color) {
  if (typeof color !== "number") return color;
  if (color < 16) return `var(--ansi-${color})`;
  if (color >= 232) return `rgb(${Array(3).fill(8 + (color - 232) * 10)})`;
  const cube = color - 16;
  return `rgb(${[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((level) => LEVELS[level])})`;
}

// Puts a style on a node, by classes and CSSOM only: the content security policy allows no style attributes.
export function paint(node, { fg, bg, flags }) {
  if (flags & INVERSE) [fg, bg] = [bg ?? "var(--terminal-background)", fg ?? "var(--terminal-text)"];
  if (flags & BOLD && typeof fg === "number" && fg < 8) fg += 8;
  if (fg !== null) node.style.color = cssColor(fg);
  if (bg !== null) node.style.backgroundColor = cssColor(bg);
  if (flags & BOLD) node.classList.add("bold");
  if (flags & DIM) node.classList.add("dim");
  if (flags & ITALIC) node.classList.add("italic");
  if (flags & HIDDEN) node.classList.add("concealed");
  if (flags & UNDERLINE) node.classList.add("underline");
  if (flags & STRIKE) node.classList.add("strike");
}
