// Declarations for consumers: what the compiler says of the sources, without what is marked @internal, and only the files
// that the two entrances lead to. `--check` compares with what is there.

import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const out = join(root, 'types');

/** Every declaration file that the compiler makes, by path. */
function emit() {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile);
  const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram(fileNames, { ...options, noEmit: false, declaration: true, emitDeclarationOnly: true, outDir: out });
  const problems = ts.getPreEmitDiagnostics(program);
  if (problems.length > 0) throw new Error(ts.formatDiagnostics(problems, { getCanonicalFileName: (name) => name, getCurrentDirectory: () => root, getNewLine: () => '\n' }));
  const files = new Map();
  program.emit(undefined, (path, text) => files.set(path, text));
  return files;
}

/** By the comment that stands right before it. */
function isInternal(node, text) {
  const comment = ts.getLeadingCommentRanges(text, node.pos)?.at(-1);
  return comment !== undefined && text.slice(comment.pos, comment.end).includes('@internal');
}

/** Takes out what is internal; a class whose constructor is cannot be made from outside. */
function strip(path, text) {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const edits = [];
  const visit = (node) => {
    if ((ts.isClassElement(node) || ts.isFunctionDeclaration(node) || ts.isClassDeclaration(node)) && isInternal(node, text)) {
      edits.push([ts.getLeadingCommentRanges(text, node.pos).at(-1).pos, node.end, ts.isConstructorDeclaration(node) ? 'private constructor();' : '']);
      return;
    }
    // What is private already says nothing to a reader.
    if (ts.isPropertyDeclaration(node) && ts.isPrivateIdentifier(node.name)) edits.push([node.pos, node.end, '']);
    else ts.forEachChild(node, visit);
  };
  visit(source);
  let result = text;
  for (const [from, to, by] of edits.reverse()) result = result.slice(0, from) + by + result.slice(to);
  return result.replace(/\/\*\*(?:(?!\*\/)[^])*@typedef(?:(?!\*\/)[^])*\*\/\n/g, '').replace(/^ +\n/gm, '');
}

/** Imports that nothing uses any more go, and with them the files they lead to. */
function dropUnusedImports(text) {
  return text.replace(/^import \{ (\w+) \} from '[^']+';\n/gm, (line, name) => (text.split(new RegExp(`\\b${name}\\b`)).length > 2 ? line : ''));
}

/** Names that a file only borrowed for its inside. */
function dropUnusedAliases(files) {
  for (const [path, text] of files) {
    const kept = text.replace(/^export type (\w+) = import\("[^"]+"\)[^;]*;\n/gm, (line, name) => {
      const here = text.split(new RegExp(`\\b${name}\\b`)).length - line.split(new RegExp(`\\b${name}\\b`)).length;
      const elsewhere = [...files].some(([other, its]) => other !== path && its.includes(`/${basename(path, '.d.ts')}.js").${name}`));
      return here > 0 || elsewhere || /(index|node)\.d\.ts$/.test(path) ? line : '';
    });
    files.set(path, kept);
  }
  return files;
}

/** In an entrance a borrowed name is the thing itself, with all that is said of it. */
function reexport(text) {
  return text.replace(/^export type (\w+) = import\(("[^"]+")\)\.\1;$/gm, 'export type { $1 } from $2;');
}

export function declarations() {
  const emitted = dropUnusedAliases(new Map([...emit()].map(([path, text]) => [path, dropUnusedImports(strip(path, text))])));
  const wanted = new Map();
  const follow = (path) => {
    if (wanted.has(path)) return;
    const text = /(index|node)\.d\.ts$/.test(path) ? reexport(emitted.get(path)) : emitted.get(path);
    if (text === undefined) throw new Error(`${path} is missing`);
    wanted.set(path, text);
    for (const [, to] of text.matchAll(/(?:from|import\()\s*['"](\.[^'"]+)\.js['"]/g)) follow(resolve(dirname(path), `${to}.d.ts`));
  };
  for (const entrance of ['index', 'node']) follow(join(out, `${entrance}.d.ts`));
  return new Map([...wanted].map(([path, text]) => [relative(out, path), text]));
}

export async function committed() {
  const files = await readdir(out, { recursive: true }).catch(() => []);
  const texts = files.filter((file) => file.endsWith('.d.ts')).map(async (file) => [file, await readFile(join(out, file), 'utf8')]);
  return new Map(await Promise.all(texts));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const made = declarations();
  await rm(out, { recursive: true, force: true });
  for (const [file, text] of made) {
    await mkdir(dirname(join(out, file)), { recursive: true });
    await writeFile(join(out, file), text);
  }
  console.log(`${made.size} files in types`);
}
