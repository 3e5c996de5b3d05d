// Arrays as a file that numpy reads: a zip archive of .npy files, stored without compression.

const encoder = new TextEncoder();

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

function crc(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) value = CRC[(value ^ byte) & 0xff] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

/** An array of numpy's own format, version 1.0: a header that is as long as a multiple of 64, then the values. */
function npy(type: string, shape: number[], values: Uint8Array): Uint8Array {
  const shaped = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  const about = `{'descr': '${type}', 'fortran_order': False, 'shape': ${shaped}, }`;
  const text = about.padEnd(Math.ceil((about.length + 11) / 64) * 64 - 11) + "\n";
  const found = new Uint8Array(10 + text.length + values.length);
  found.set([0x93, ...encoder.encode("NUMPY"), 1, 0, text.length & 0xff, text.length >> 8]);
  found.set(encoder.encode(text), 10);
  found.set(values, 10 + text.length);
  return found;
}

export const numbers = (values: ArrayLike<number>, ...shape: number[]): Uint8Array => {
  const view = new DataView(new ArrayBuffer(8 * values.length));
  for (let at = 0; at < values.length; at++) view.setFloat64(8 * at, values[at], true);
  return npy("<f8", shape, new Uint8Array(view.buffer));
};

/** Texts of one width, four bytes for each character. */
export const texts = (values: string[]): Uint8Array => {
  const points = values.map((value) => Array.from(value, (one) => one.codePointAt(0) ?? 0));
  const width = Math.max(1, ...points.map(({ length }) => length)), view = new DataView(new ArrayBuffer(4 * width * values.length));
  points.forEach((value, row) => value.forEach((point, at) => view.setUint32(4 * (row * width + at), point, true)));
  return npy(`<U${width}`, [values.length], new Uint8Array(view.buffer));
};

/** A record of a zip archive: numbers of two bytes ("h") and four bytes ("i"). */
function recordOf(...fields: ["h" | "i", number][]): Uint8Array {
  const view = new DataView(new ArrayBuffer(fields.reduce((size, [kind]) => size + (kind === "h" ? 2 : 4), 0)));
  let at = 0;
  for (const [kind, value] of fields) {
    if (kind === "h") view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += kind === "h" ? 2 : 4;
  }
  return new Uint8Array(view.buffer);
}

export function npz(arrays: Record<string, Uint8Array>): Uint8Array {
  const parts: Uint8Array[] = [], central: Uint8Array[] = [];
  let offset = 0, count = 0;
  for (const [name, content] of Object.entries(arrays)) {
    const file = encoder.encode(`${name}.npy`), size = content.length;
    // version 2.0, names in UTF-8, stored, 1 January 1980
    const shared: ["h" | "i", number][] = [["h", 20], ["h", 0x800], ["h", 0], ["h", 0], ["h", 0x21], ["i", crc(content)], ["i", size], ["i", size], ["h", file.length], ["h", 0]];
    const local = recordOf(["i", 0x04034b50], ...shared);
    parts.push(local, file, content);
    central.push(recordOf(["i", 0x02014b50], ["h", 20], ...shared, ["h", 0], ["h", 0], ["h", 0], ["i", 0], ["i", offset]), file);
    offset += local.length + file.length + size;
    count++;
  }
  const length = central.reduce((sum, one) => sum + one.length, 0);
  const end = recordOf(["i", 0x06054b50], ["h", 0], ["h", 0], ["h", count], ["h", count], ["i", length], ["i", offset], ["h", 0]);
  const all = [...parts, ...central, end], found = new Uint8Array(all.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of all) {
    found.set(one, at);
    at += one.length;
  }
  return found;
}
