// Text to ids and back: the tokenizers of regard/data/tokenizers.py, with equal ids.

import type { TokenizerData } from "../data.ts";
import { Merges } from "./bpe.ts";
import { strip } from "./text.ts";

/** The ids of a text, and the part of the text that each unknown token stands for. */
export interface Encoded {
  ids: number[];
  unknown: string[];
}

const SPACE = "▁";
/** Letters and punctuation are never in one sub-word. */
const BPE_SPLIT = /▁?[\p{L}\p{M}\p{N}]+|▁?[^▁\p{L}\p{M}\p{N}]+|▁/gu;
/** GPT-2's words; white space as Unicode has it, which is not that of JavaScript's \s. */
const BYTE_SPLIT =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const WORD = /\P{White_Space}+/gu;
const WORDS = ["word", "word-eos", "word-lower"];

/** The characters that stand for bytes in a byte-level vocabulary: visible ones of Latin-1 for themselves. */
const BYTES = byteCharacters();

export class Tokenizer {
  private readonly ids = new Map<string, number>();
  private readonly merges: Merges | null;
  private readonly surfaces: Uint8Array[];

  constructor(readonly data: TokenizerData) {
    data.vocab.forEach((name, id) => this.ids.set(name, id));
    this.merges = data.kind.endsWith("bpe") ? new Merges(data, this.ids) : null;
    this.surfaces = data.surfaces.map(bytesOf);
  }

  get size(): number {
    return this.data.display.length;
  }

  /** The tokens of a text, without bos and eos; the mask token may be written in the text. */
  encode(text: string): Encoded {
    const found: Encoded = { ids: [], unknown: [] };
    const { mask } = this.data.special;
    const pieces = mask === null ? [text] : text.split(this.data.vocab[mask]);
    pieces.forEach((piece, at) => {
      if (at > 0) found.ids.push(mask!);
      if (pieces.length > 1) piece = this.stripped(piece, at > 0, at < pieces.length - 1);
      if (piece) this.encodePiece(piece, found);
    });
    if (this.data.direction === "backward") {
      found.ids.reverse();
      found.unknown.reverse();
    }
    return found;
  }

  /** A part of a text beside a mask, which takes the spaces before it, and those after it if each word gets a space. */
  private stripped(piece: string, after: boolean, before: boolean): string {
    if (this.data.kind === "char") return piece;
    if (before) piece = piece.replace(/\p{White_Space}+$/u, "");
    return after && this.data.kind !== "byte-bpe" ? piece.replace(/^\p{White_Space}+/u, "") : piece;
  }

  private encodePiece(text: string, found: Encoded): void {
    const { kind } = this.data, unk = this.data.special.unk;
    const add = (name: string, original: string): void => {
      const id = this.ids.get(name) ?? unk;
      if (id === null || id === undefined) return;
      found.ids.push(id);
      if (id === unk) found.unknown.push(strip(original) || original);
    };
    if (kind === "char") {
      for (const character of text) add(character, character);
    } else if (WORDS.includes(kind)) {
      const lines = kind === "word-eos" ? text.replaceAll("\n", " <eos> ") : text;
      for (const [word] of lines.matchAll(WORD)) {
        add(kind === "word-lower" ? lower(word.normalize("NFC")) : word.normalize("NFC"), word);
      }
    } else if (kind === "bpe") {
      const written = (SPACE + text.normalize("NFC")).replaceAll(" ", SPACE);
      for (const [word] of written.matchAll(BPE_SPLIT)) {
        this.merges!.encode([...word], (name) => add(name, name));
      }
    } else if (kind === "byte-bpe") {
      for (const [word] of text.matchAll(BYTE_SPLIT)) {
        this.merges!.encode(Array.from(encoder.encode(word), (byte) => BYTES[byte]), (name) => add(name, name));
      }
    } else throw new Error(`the engine has no tokenizer ${kind}`);
  }

  /** What each token is called on an axis; an id past the last token is its number. */
  pieces(ids: number[]): string[] {
    return ids.map((id) => this.data.display[id] ?? `<${id}>`);
  }

  /** The text that a token adds, with its spaces. */
  surface(id: number): string {
    return decoder().decode(this.surfaces[id]);
  }

  /** The text of tokens; bytes that are no text give �. */
  decode(ids: number[]): string {
    const parts = this.bytes(this.inReadingOrder(ids)), all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return decoder().decode(all);
  }

  /** The part of the text that each token gives, with its spaces; of the tokens of a character, the last one has it. */
  parts(ids: number[]): string[] {
    const stream = decoder();
    return this.inReadingOrder(this.bytes(this.inReadingOrder(ids)).map((part) => stream.decode(part, { stream: true })));
  }

  /** The bytes that each token adds; the first one loses the space that encoding adds to every text. */
  private bytes(ids: number[]): Uint8Array[] {
    const found = ids.map((id) => this.surfaces[id] ?? encoder.encode(`<${id}>`));
    const first = found.findIndex((part) => part.length > 0);
    const spaced = WORDS.includes(this.data.kind) || this.data.kind === "bpe";
    if (spaced && first >= 0 && found[first][0] === 0x20) found[first] = found[first].subarray(1);
    return found;
  }

  private inReadingOrder<T>(items: T[]): T[] {
    return this.data.direction === "backward" ? [...items].reverse() : items;
  }

  /** The ids of an input: prefix, text, suffix. */
  wrapInput(ids: number[]): number[] {
    const { prefix, suffix } = this.data.special;
    return present(prefix, ...ids, suffix);
  }

  /** The ids of a target: bos, text, eos. */
  wrapTarget(ids: number[]): number[] {
    const { bos, eos } = this.data.special;
    return present(bos, ...ids, eos);
  }

  /** The ids of an input of several parts, and the segment of each: prefix A separator B suffix. */
  joinInput(parts: number[][]): { ids: number[]; segments: number[] } {
    const { prefix, suffix, bos, eos, separator, second_segment: second } = this.data.special;
    const first = prefix === null && suffix === null ? bos : prefix, last = suffix ?? eos;
    const between = separator.length ? separator : present(last);
    const ids = present(first), segments = ids.map(() => 0);
    parts.forEach((part, at) => {
      const whole = [...part, ...(at < parts.length - 1 ? between : present(last))];
      ids.push(...whole);
      segments.push(...whole.map(() => (at ? second : 0)));
    });
    return { ids, segments };
  }

  /** Whether an id is a special token that is added around a text. */
  isSpecial(id: number): boolean {
    const { pad, bos, eos, prefix, suffix, separator } = this.data.special;
    return [pad, bos, eos, prefix, suffix, ...separator].includes(id);
  }
}

const present = (...ids: (number | null)[]): number[] => ids.filter((id) => id !== null);

const encoder = new TextEncoder();
const decoder = (): TextDecoder => new TextDecoder("utf-8", { ignoreBOM: true });

/** Lower case of each character alone: Σ at the end of a word is σ, as in the tokenizers of Python. */
const lower = (text: string): string => Array.from(text, (character) => character.toLowerCase()).join("");

/** The bytes of a surface: \uDC80 … \uDCFF alone are the bytes 0x80 … 0xFF, all else is UTF-8. */
function bytesOf(surface: string): Uint8Array {
  return Uint8Array.from(
    Array.from(surface).flatMap((character) => {
      const code = character.charCodeAt(0);
      return character.length === 1 && code >= 0xdc80 && code <= 0xdcff ? [code - 0xdc00] : [...encoder.encode(character)];
    }),
  );
}

function byteCharacters(): string[] {
  const visible = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(visible(byte) ? byte : next++));
}
