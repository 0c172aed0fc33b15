// YAML of drafts. Drafts may be incomplete and contain passwords that the server never returns, so it cannot convert
// them.
//
// `parse` reads block mappings and sequences, quoted and plain scalars, `|` blocks, and JSON. It rejects everything
// that versions of YAML read differently (`yes`, `1.0`, `0o7`) or that needs more than this, such as anchors. The
// caller then lets the server read the text.

class YamlError extends Error {
  constructor(message, line) {
    super(line ? `line ${line}: ${message}` : message);
    this.line = line;
  }
}

const PLAIN = /^[A-Za-z_/.$<][^\n#:]*$|^[A-Za-z_/.$<](?:[^\n#:]|:(?=\S)|(?<=\S)#)*$/;
const AMBIGUOUS = /^(~|null|true|false|yes|no|on|off|y|n|\.inf|\.nan|[-+]?[.\d][\d._eExXoOa-fA-F+:-]*|<<|=)$/i;
const isPlain = (text) => PLAIN.test(text) && !AMBIGUOUS.test(text) && text.trim() === text && !text.endsWith(":");

export function emit(value, indent = "") {
  if (value === null || typeof value !== "object") return emitScalar(value, indent);
  const entries = Object.entries(value);
  if (!entries.length) return Array.isArray(value) ? "[]" : "{}";
  return entries
    .map(([key, each]) => {
      const isBlock = each && typeof each === "object" && Object.keys(each).length;
      if (Array.isArray(value))
        return `${indent}- ${isBlock ? emit(each, `${indent}  `).trimStart() : emit(each, `${indent}  `)}`;
      const inner = Array.isArray(each) ? indent : `${indent}  `;
      return `${indent}${isPlain(key) ? key : JSON.stringify(key)}:${isBlock ? "\n" : " "}${emit(each, inner)}`;
    })
    .join("\n");
}

function emitScalar(value, indent) {
  if (typeof value !== "string") return JSON.stringify(value);
  if (isPlain(value)) return value;
  const isText = value.includes("\n") && /^[^\s][\t\n\x20-\x7e\xa0-\ud7ff]*$/.test(value) && !/\n\n$/.test(value);
  if (!isText) return JSON.stringify(value);
  const lines = value
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => (line ? indent + line : ""));
  return `${value.endsWith("\n") ? "|" : "|-"}\n${(indent ? lines : lines.map((line) => `  ${line}`)).join("\n")}`;
}

export function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    /* not JSON */
  }
  const lines = text.split("\n").map((raw, index) => ({ raw: raw.replace(/\r$/, ""), number: index + 1 }));
  if (lines[0].raw.trim() === "---") lines.shift();
  const reader = new Reader(lines);
  const value = reader.peek() ? reader.block(reader.peek().indent) : undefined;
  if (reader.peek()) throw new YamlError("wrong indentation", reader.peek().number);
  return value;
}

class Reader {
  constructor(lines) {
    this.lines = lines;
    this.at = 0;
  }

  // The next line with content: {indent, text, number}.
  peek() {
    for (; this.at < this.lines.length; this.at++) {
      const { raw, number } = this.lines[this.at];
      if (/^\s*(#|$)/.test(raw)) continue;
      if (/^ *\t/.test(raw)) throw new YamlError("a tab cannot indent a line", number);
      return { indent: raw.search(/\S/), text: raw.trim(), number };
    }
    return null;
  }

  block(indent) {
    const first = this.peek();
    if (/^-( |$)/.test(first.text)) return this.sequence(indent);
    return splitKey(first) ? this.mapping(indent) : this.inline(this.take().text, indent, first.number);
  }

  take() {
    const line = this.peek();
    this.at++;
    return line;
  }

  sequence(indent) {
    const found = [];
    for (let line; (line = this.peek()) && line.indent === indent && /^-( |$)/.test(line.text); ) {
      const rest = line.text.slice(1).trimStart();
      const inner = indent + line.text.length - rest.length;
      if (!rest || rest.startsWith("#")) {
        this.take();
        found.push(this.nested(indent + 1));
      } else if (/^-( |$)/.test(rest) || splitKey({ text: rest, number: line.number })) {
        this.lines[this.at] = { raw: " ".repeat(inner) + rest, number: line.number };
        found.push(this.block(inner));
      } else {
        this.take();
        found.push(this.inline(rest, indent, line.number));
      }
    }
    return found;
  }

  mapping(indent) {
    const found = {};
    for (let line; (line = this.peek()) && line.indent === indent; ) {
      const pair = splitKey(line);
      if (!pair) throw new YamlError("expected `key: value`", line.number);
      const [key, rest] = pair;
      if (Object.hasOwn(found, key)) throw new YamlError(`the key ${key} appears twice`, line.number);
      this.take();
      const value = !rest || rest.startsWith("#") ? this.nested(indent, true) : this.inline(rest, indent, line.number);
      Object.defineProperty(found, key, { value, enumerable: true, writable: true, configurable: true });
    }
    return found;
  }

  // The block below a key or a dash. A sequence may start at the indentation of its key.
  nested(indent, isValue = false) {
    const line = this.peek();
    if (line && (isValue ? line.indent > indent : line.indent >= indent)) return this.block(line.indent);
    return isValue && line?.indent === indent && /^-( |$)/.test(line.text) ? this.sequence(indent) : null;
  }

  inline(text, indent, number) {
    if (/^\|[-+]?$/.test(text)) return this.literal(indent, text[1] ?? "");
    return scalar(text, number);
  }

  literal(indent, chomp) {
    const found = [];
    let inner = 0;
    for (; this.at < this.lines.length; this.at++) {
      const { raw } = this.lines[this.at];
      const own = raw.search(/\S/);
      if (own >= 0 && own <= indent && !(inner && own >= inner)) break;
      if (own >= 0) inner ||= own;
      if (own >= 0 && own < inner) throw new YamlError("wrong indentation", this.lines[this.at].number);
      found.push(raw.slice(inner));
    }
    const text = found.join("\n");
    if (chomp === "+") return `${text}\n`;
    const body = text.replace(/\n+$/, "");
    return chomp || !body ? body : `${body}\n`;
  }
}

// ["key", "rest of the line"], or null for a line that is no entry of a mapping.
function splitKey({ text, number }) {
  const quoted = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*:(?:\s+(.*)|)$/s.exec(text);
  if (quoted) return [scalar(quoted[1], number), quoted[2] ?? ""];
  const plain = /^([^\s"'#&*!|>%@\x60{[?,-][^#]*?|-[^\s#][^#]*?)\s*:(?:\s+(.*)|)$/s.exec(text);
  return plain && [String(plain[1]), plain[2] ?? ""];
}

function scalar(source, number) {
  const text = /^["'[{]/.test(source) ? source : source.replace(/\s+#.*$/, "");
  if (/^'(?:[^']|'')*'$/.test(text)) return text.slice(1, -1).replaceAll("''", "'");
  if (/^["[{]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      throw new YamlError("only JSON is read within quotes, [] and {}", number);
    }
  }
  if (/^(null|~)$/.test(text)) return null;
  if (/^(true|false)$/.test(text)) return text === "true";
  if (/^-?\d{1,15}(\.\d+)?$/.test(text) && String(Number(text)) === text) return Number(text);
  if (AMBIGUOUS.test(text) || /^[&*!|>%@\x60'"{}[\],?]|: |:$/.test(text))
    throw new YamlError(`${text.slice(0, 40)} needs quotes`, number);
  return text;
}
