// SHA-256 (FIPS 180-4), bytes in as they come. The platform's own is faster, but takes everything at once and is missing
// on plain http.

/** Up to this size the platform hashes the whole at once. */
const AT_ONCE_MAX = 8 * 1024 * 1024;
const CHUNK = 1024 * 1024;

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const K = new Uint32Array(64);
/** The same of the square roots of the first eight. */
const START = new Uint32Array(8);
for (let n = 2, found = 0; found < 64; n += 1) {
  let prime = true;
  for (let by = 2; by * by <= n; by += 1) if (n % by === 0) prime = false;
  if (!prime) continue;
  if (found < 8) START[found] = ((n ** (1 / 2)) % 1) * 2 ** 32;
  K[found] = ((n ** (1 / 3)) % 1) * 2 ** 32;
  found += 1;
}

export class Sha256 {
  #state = START.slice();
  #block = new Uint8Array(64);
  #view = new DataView(this.#block.buffer);
  #words = new Uint32Array(64);
  #filled = 0;
  #length = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#length += bytes.length;
    for (let at = 0; at < bytes.length; ) {
      const take = Math.min(64 - this.#filled, bytes.length - at);
      this.#block.set(bytes.subarray(at, at + take), this.#filled);
      this.#filled += take;
      at += take;
      if (this.#filled === 64) this.#compress();
    }
    return this;
  }

  /** In hexadecimal. Nothing may be added after it. */
  digest() {
    const bits = this.#length * 8;
    this.#block[this.#filled++] = 0x80;
    if (this.#filled > 56) {
      this.#block.fill(0, this.#filled);
      this.#compress();
    }
    this.#block.fill(0, this.#filled);
    this.#view.setUint32(56, Math.floor(bits / 2 ** 32));
    this.#view.setUint32(60, bits >>> 0);
    this.#compress();
    return Array.from(this.#state, (word) => word.toString(16).padStart(8, '0')).join('');
  }

  #compress() {
    const w = this.#words;
    for (let t = 0; t < 16; t += 1) w[t] = this.#view.getUint32(t * 4);
    for (let t = 16; t < 64; t += 1) {
      const x = w[t - 15];
      const y = w[t - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
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
    const state = this.#state;
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
    this.#filled = 0;
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
