// Rows as CSV (RFC 4180), and its download.

// A spreadsheet runs a cell that begins with one of these as a formula, and the cells here have been written by others.
const FORMULA = /^[=+\-@\t\r]/;
const NUMBER = /^[+-]?\d+(\.\d+)?$/;

function quote(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function toCsv(columns, rows) {
  const head = columns.map((column) => column.title);
  const body = rows.map((row) => columns.map((column) => column.export(row)));
  return [head, ...body].map((cells) => `${cells.map(quote).join(",")}\r\n`).join("");
}

export function download(name, text, type = "text/csv") {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
