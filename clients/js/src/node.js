// For Node: everything, and a storage in a file.

export * from './index.js';
export { fileStorage } from './storage/file.js';
