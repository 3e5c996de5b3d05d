// Builds the scripts of Regard's pages into the package: `npm run build`. The built files are committed, so that a user
// needs no Node; the same sources give the same bytes. With --tests, bundles the tests into .tests for `node --test`.
import { existsSync, readdirSync } from "node:fs";
import { build } from "esbuild";

const shared = { bundle: true, target: "es2022", charset: "utf8", logLevel: "warning", legalComments: "none" };

if (process.argv.includes("--tests")) {
  const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  await build({
    ...shared,
    entryPoints: tests.map((name) => `test/${name}`),
    outdir: ".tests",
    outExtension: { ".js": ".mjs" },
    format: "esm",
    platform: "node",
  });
} else {
  for (const [name, entry] of [["page", "src/page.ts"], ["engine", "src/engine/worker.ts"]]) {
    if (!existsSync(entry)) continue;
    await build({
      ...shared,
      entryPoints: [entry],
      outfile: `../src/regard/render/built/${name}.js`,
      format: "iife",
      minify: true,
    });
  }
}
