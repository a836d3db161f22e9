/** @returns {import('./memory.js').Storage} */
export function defaultStorage(): import("./memory.js").Storage;
