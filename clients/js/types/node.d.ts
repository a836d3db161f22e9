export * from "./index.js";
export { fileStorage } from "./storage/file.js";
