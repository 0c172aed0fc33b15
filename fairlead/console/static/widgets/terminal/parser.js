// Splits the output of a program into text, control characters and sequences. What is unknown is skipped, and
// everything is bounded: parameters, and the texts inside of sequences.

const GROUND = 0;
const ESCAPE = 1;
const SEQUENCE = 2;
const STRING = 3;
const STRING_ESCAPE = 4;
const MAX_PARAMETERS = 256;
const MAX_STRING = 128 * 1024;

// `target` has print(text), control(code), escape(name), sequence(name, parameters) and command(text), that is an OSC.
export class Parser {
  #target;
  #state = GROUND;
  #collected = "";
  #string = ""; // what kind of string this is: "]" is an OSC, the others are skipped
  #isTooLong = false;

  constructor(target) {
    this.#target = target;
  }

  feed(text) {
    let index = 0;
    while (index < text.length) {
      if (this.#state === STRING) index = this.#readString(text, index);
      else if (this.#state === GROUND) index = this.#readText(text, index);
      else this.#step(text[index], text.charCodeAt(index++));
    }
  }

  #readText(text, start) {
    let end = start;
    for (let code; end < text.length; end++) {
      code = text.charCodeAt(end);
      if (code < 32 || (code >= 127 && code < 160)) break;
    }
    if (end > start) this.#target.print(text.slice(start, end));
    else this.#control(text.charCodeAt(end++));
    return end;
  }

  #readString(text, start) {
    let end = start;
    for (let code; end < text.length; end++) {
      code = text.charCodeAt(end);
      if (code === 27 || code === 24 || code === 26 || (code === 7 && this.#string === "]")) break;
    }
    if (this.#collected.length + end - start > MAX_STRING) this.#isTooLong = true;
    else if (this.#string === "]") this.#collected += text.slice(start, end);
    if (end === text.length) return end;
    const code = text.charCodeAt(end);
    if (code === 27) this.#state = STRING_ESCAPE;
    else this.#endString(code === 7);
    return end + 1;
  }

  #endString(isComplete) {
    this.#state = GROUND;
    if (isComplete && this.#string === "]" && !this.#isTooLong) this.#target.command(this.#collected);
    this.#collected = "";
  }

  #control(code) {
    if (code === 27) this.#begin(ESCAPE);
    else if (code === 24 || code === 26) this.#state = GROUND;
    else if (code < 32) this.#target.control(code);
  }

  #begin(state) {
    this.#state = state;
    this.#collected = "";
    this.#isTooLong = false;
  }

  #step(character, code) {
    if (this.#state === STRING_ESCAPE) {
      this.#endString(character === "\\");
      if (character === "\\") return;
      this.#begin(ESCAPE);
    }
    if (code < 32) this.#control(code);
    else if (code >= 127) this.#state = code === 127 ? this.#state : GROUND;
    else if (this.#state === ESCAPE) this.#stepEscape(character, code);
    else this.#stepSequence(character, code);
  }

  #stepEscape(character, code) {
    if (code < 48) {
      if (this.#collected.length < 4) this.#collected += character;
    } else if (!this.#collected && character === "[") this.#begin(SEQUENCE);
    else if (!this.#collected && "]PX^_".includes(character)) {
      this.#begin(STRING);
      this.#string = character;
    } else {
      this.#state = GROUND;
      this.#target.escape(this.#collected + character);
    }
  }

  #stepSequence(character, code) {
    if (code < 64) {
      if (this.#collected.length < MAX_PARAMETERS) this.#collected += character;
      else this.#isTooLong = true;
      return;
    }
    this.#state = GROUND;
    const [whole, prefix, parameters, between] = /^([<=>?]?)([0-9;:]*)([ -/]*)$/.exec(this.#collected) ?? [];
    if (whole !== undefined && !this.#isTooLong) this.#target.sequence(prefix + between + character, parameters);
  }
}
