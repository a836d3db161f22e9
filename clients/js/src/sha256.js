// SHA-256 (FIPS 180-4), bytes in as they come. The platform's own is faster, but takes everything at once and is missing
// on plain http.

/** Up to this size the platform hashes the whole at once. */
const AT_ONCE_MAX = 8 * 1024 * 1024;
const CHUNK = 1024 * 1024;

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const K = new Int32Array(64);
/** The same of the square roots of the first eight. */
const START = new Int32Array(8);
for (let n = 2, found = 0; found < 64; n += 1) {
  let prime = true;
  for (let by = 2; by * by <= n; by += 1) if (n % by === 0) prime = false;
  if (!prime) continue;
  if (found < 8) START[found] = ((n ** (1 / 2)) % 1) * 2 ** 32;
  K[found] = ((n ** (1 / 3)) % 1) * 2 ** 32;
  found += 1;
}

export class Sha256 {
  #state = Int32Array.from(START);
  #words = new Int32Array(64);
  #block = new Uint8Array(64);
  #filled = 0;
  #length = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    if (this.#filled > 0) {
      at = Math.min(64 - this.#filled, bytes.length);
      this.#block.set(bytes.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < 64) return this;
      compress(this.#state, this.#words, this.#block, 0, 64);
      this.#filled = 0;
    }
    const whole = bytes.length - ((bytes.length - at) % 64);
    compress(this.#state, this.#words, bytes, at, whole);
    this.#block.set(bytes.subarray(whole));
    this.#filled = bytes.length - whole;
    return this;
  }

  /** In hexadecimal. Nothing may be added after it. */
  digest() {
    // A one, zeros, and the length in bits, so that it all fills blocks.
    const tail = new Uint8Array(this.#filled < 56 ? 64 : 128);
    tail.set(this.#block.subarray(0, this.#filled));
    tail[this.#filled] = 0x80;
    const bits = new DataView(tail.buffer, tail.length - 8);
    bits.setUint32(0, Math.floor(this.#length / 2 ** 29));
    bits.setUint32(4, (this.#length * 8) >>> 0);
    compress(this.#state, this.#words, tail, 0, tail.length);
    return Array.from(this.#state, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
  }
}

/** @param {Int32Array} state @param {Int32Array} w @param {Uint8Array} bytes @param {number} from @param {number} to */
function compress(state, w, bytes, from, to) {
  for (let at = from; at < to; at += 64) {
    for (let t = 0, n = at; t < 16; t += 1, n += 4) {
      w[t] = (bytes[n] << 24) | (bytes[n + 1] << 16) | (bytes[n + 2] << 8) | bytes[n + 3];
    }
    for (let t = 16; t < 64; t += 1) {
      const x = w[t - 15];
      const y = w[t - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[t] = (w[t - 16] + s0 + w[t - 7] + s1) | 0;
    }
    let a = state[0];
    let b = state[1];
    let c = state[2];
    let d = state[3];
    let e = state[4];
    let f = state[5];
    let g = state[6];
    let h = state[7];
    for (let t = 0; t < 64; t += 1) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[t] + w[t]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    state[0] = (state[0] + a) | 0;
    state[1] = (state[1] + b) | 0;
    state[2] = (state[2] + c) | 0;
    state[3] = (state[3] + d) | 0;
    state[4] = (state[4] + e) | 0;
    state[5] = (state[5] + f) | 0;
    state[6] = (state[6] + g) | 0;
    state[7] = (state[7] + h) | 0;
  }
}

/** @param {Blob} blob @param {AbortSignal} [signal] @returns {Promise<string>} */
export async function sha256Of(blob, signal) {
  const subtle = globalThis.crypto?.subtle;
  if (subtle && blob.size <= AT_ONCE_MAX) {
    const hash = await subtle.digest('SHA-256', await blob.arrayBuffer());
    return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
  }
  const sha = new Sha256();
  for (let at = 0; at < blob.size; at += CHUNK) {
    signal?.throwIfAborted();
    sha.update(new Uint8Array(await blob.slice(at, at + CHUNK).arrayBuffer()));
  }
  return sha.digest();
}
