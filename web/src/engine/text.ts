// How tokens are written: the same as regard/render/formatting.py writes them.

const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
/** White space as str.isspace of Python has it. */
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const IS_SPACE = new RegExp(`^[${SPACE}]$`);
const ENDS = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g");
const WIDE =
  /[\u1100-\u115f\u231a\u231b\u2329\u232a\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693\u26a1\u26aa\u26ab\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c\u274e\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f000}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const NO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}\u1160-\u11ff]/u;

const SEGMENTER = new Intl.Segmenter("en", { granularity: "grapheme" });

/** A text without the white space around it, as str.strip. */
export const strip = (text: string): string => text.replace(ENDS, "");

/** A token with visible symbols for spaces, control characters and lone accents: no label is blank. */
export function visible(piece: string): string {
  if (!piece) return "∅";
  const shown = piece.split(/(?<=\S) (?=\S)/u).map((part) => Array.from(part, visibleCharacter).join("")).join(" ");
  return width(graphemes(shown)[0]) ? shown : `◌${shown}`; // an accent or a joiner without a letter before it
}

function visibleCharacter(character: string): string {
  if (character === "\n") return "↵";
  if (character === "\t") return "⇥";
  if (IS_SPACE.test(character)) return "␣";
  const code = character.codePointAt(0)!;
  if (code < 32) return String.fromCharCode(0x2400 + code);
  return /[\p{Cc}\p{Cs}]/u.test(character) || DIRECTIONS.test(character) ? "�" : character;
}

/** The characters that a reader sees: letters with their accents, combined emoji, flags. */
export function graphemes(text: string): string[] {
  if (/^[\x20-\x7e]*$/.test(text)) return [...text];
  return Array.from(SEGMENTER.segment(text), ({ segment }) => segment);
}

/** The labels of an axis. Of tokens that are parts of one character, the first shows it whole, the others show ⋯. */
export function labels(pieces: string[]): string[] {
  const shown = pieces.map(visible), texts = pieces.map((piece) => piece || " "), starts = new Map<number, number>();
  let place = 0;
  texts.forEach((text, at) => {
    starts.set(place, at);
    place += text.length;
  });
  starts.set(place, texts.length);
  place = 0;
  for (const character of graphemes(texts.join(""))) {
    const first = starts.get(place), end = starts.get(place + character.length);
    if (first !== undefined && end !== undefined && end > first + 1) {
      shown[first] = visible(character);
      shown.fill("⋯", first + 1, end);
    }
    place += character.length;
  }
  return shown;
}

/** The width of a text in letters: that of CJK and emoji is two, also of several that are joined to one. */
export function width(text: string): number {
  const letters = (shown: string): number => Array.from(shown).reduce((sum, one) => sum + (NO_WIDTH.test(one) ? 0 : WIDE.test(one) ? 2 : 1), 0);
  return graphemes(text).reduce((sum, one) => sum + (one.includes("\u200d") ? Math.min(2, letters(one)) : letters(one)), 0);
}

/** A text whose invisible directions are written as escapes, such as \u202e. */
export function escapeDirections(text: string): string {
  return Array.from(text, (one) => (DIRECTIONS.test(one) ? `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}` : one)).join("");
}
