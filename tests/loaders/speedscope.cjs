// What speedscope's own importer makes of a profile.
//
//     node speedscope.cjs FILE
//
// speedscope is an application of one bundle that exports nothing. Its importer is found by the
// message that it logs, and the bundle ends where it would draw. Prints a JSON list of profiles,
// each with its calls: name, file, line, depth, start and end.
const fs = require("fs");
const path = require("path");

const folder = path.join(path.dirname(require.resolve("speedscope/package.json")), "dist/release");
const bundle = fs.readdirSync(folder).find((name) => /^speedscope-.*\.js$/.test(name));
const code = fs.readFileSync(path.join(folder, bundle), "utf8");
const importer = /Importing as speedscope json file"\),(\w+)\(/.exec(code)[1];
const end = code.lastIndexOf("console.log(`speedscope v");

// What the bundle asks of a browser before it draws.
const anything = () =>
  new Proxy(function () {}, {
    get: (_, key) => (key === Symbol.toPrimitive ? () => "" : anything()),
    apply: anything,
    construct: anything,
  });
const exported = {};
const browser = {
  exported,
  window: anything(),
  document: anything(),
  navigator: { userAgent: "", platform: "" },
  location: { hash: "" },
  localStorage: anything(),
  console: { log() {}, warn() {}, error() {} },
};
const text = `${code.slice(0, end)}exported.load = ${importer};})();`;
new Function(...Object.keys(browser), text)(...Object.values(browser));

function callsOf(profile) {
  const open = [];
  const calls = [];
  profile.forEachCall(
    (node, start) => {
      const { name, file, line } = node.frame;
      open.push({ name, file, line, depth: open.length, start });
      calls.push(open.at(-1));
    },
    (_, stop) => Object.assign(open.pop(), { end: stop }),
  );
  return calls;
}

const group = exported.load(JSON.parse(fs.readFileSync(process.argv[2], "utf8")));
process.stdout.write(
  JSON.stringify(
    group.profiles.map((profile) => ({
      name: profile.getName(),
      unit: profile.getWeightUnit(),
      weight: profile.getTotalWeight(),
      calls: callsOf(profile),
    })),
  ),
);
