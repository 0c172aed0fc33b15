// Quantities of Kubernetes: "500m", "1Gi", "2k".

/** @type {Record<string, number>} */
const FACTORS = { m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, n: 1e-9, u: 1e-6 };
const BINARY = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/**
 * As a number; NaN if the text is none.
 * @param {any} text
 */
export function parseQuantity(text) {
  const [, digits, suffix] = /^([-+]?[\d.]+(?:[eE][-+]?\d+)?)([a-zA-Z]*)$/.exec(String(text).trim()) ?? [];
  const power = BINARY.indexOf(suffix) + 1;
  return Number(digits) * (power ? 1024 ** power : (FACTORS[suffix] ?? Number.NaN));
}

/**
 * Bytes as people read them: "31.2 GiB".
 * @param {number} bytes
 */
export function printBytes(bytes) {
  const power = Math.min(BINARY.length, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  const value = bytes / 1024 ** power;
  const number = value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1);
  return `${number} ${power ? `${BINARY[power - 1]}B` : "B"}`;
}
