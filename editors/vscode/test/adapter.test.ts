/** `tkdebug dap` under the test client of VS Code. `PYTHON` names the Python that has tkdebug. */

import * as assert from "assert";
import { spawnSync } from "child_process";
import { readFileSync } from "fs";
import * as path from "path";
import { DebugClient } from "@vscode/debugadapter-testsupport";

type Variable = { name: string; value: string; variablesReference: number };
type Frame = { id: number; name: string; line: number };

const PROGRAM = path.resolve(__dirname, "../../test/kernels.py");
const LINES = readFileSync(PROGRAM, "utf8").split("\n");
const LAUNCH = { program: PROGRAM, args: ["3"], cwd: path.dirname(PROGRAM) };
const LONGEST_MS = 30_000;
const PYTHON = process.env.PYTHON ?? "python3";

function line(name: string): number {
  return LINES.findIndex((text) => text.endsWith(`# ${name}`)) + 1;
}

/** The client passes one argument to what it starts: a shell makes several of it. */
async function started(module: string, type: string): Promise<DebugClient> {
  const client = new DebugClient(`exec "${PYTHON}"`, `-m ${module}`, type, { shell: true });
  client.defaultTimeout = LONGEST_MS;
  await client.start();
  return client;
}

describe("tkdebug dap", function () {
  this.timeout(2 * LONGEST_MS);
  let client: DebugClient;

  beforeEach(async () => {
    client = await started("tkdebug dap", "tkdebug");
  });

  afterEach(() => client.stop());

  async function topOf(threadId: number): Promise<Frame> {
    const answer = await client.stackTraceRequest({ threadId });
    return answer.body.stackFrames[0] as Frame;
  }

  async function variables(frameId: number): Promise<Map<string, Variable>> {
    const scopes = (await client.scopesRequest({ frameId })).body.scopes;
    const variablesReference = scopes[0]!.variablesReference;
    const answer = await client.variablesRequest({ variablesReference });
    return new Map(answer.body.variables.map((one) => [one.name, one]));
  }

  async function value(expression: string, frameId: number): Promise<string> {
    return (await client.evaluateRequest({ expression, frameId })).body.result;
  }

  /** Does what `request` asks for; the thread and the frame of the stop that follows. */
  async function stopAfter(request: () => Promise<unknown>): Promise<[number, Frame, string]> {
    const [stop] = await Promise.all([client.waitForEvent("stopped"), request()]);
    const threadId: number = stop.body.threadId;
    return [threadId, await topOf(threadId), stop.body.reason];
  }

  /** Launches with these breakpoints at a line; the answers about them. */
  async function launched(
    breakpoint: object,
    configuration: object = LAUNCH,
  ): Promise<{ verified: boolean; message?: string }[]> {
    const begun = client.waitForEvent("initialized").then(async () => {
      const source = { path: PROGRAM };
      const asked = [breakpoint as { line: number }];
      const answer = await client.setBreakpointsRequest({ source, breakpoints: asked });
      await client.configurationDoneRequest();
      return answer.body.breakpoints;
    });
    await client.launch(configuration);
    return begun;
  }

  it("runs a script, forwards its output and its exit status", async () => {
    const [exited] = await Promise.all([
      client.waitForEvent("exited"),
      client.waitForEvent("terminated"),
      client.assertOutput("stdout", "sums [66.0, 210.0]\n", LONGEST_MS),
      client.assertOutput("stderr", "to stderr\n", LONGEST_MS),
      client.configurationSequence(),
      client.launch(LAUNCH),
    ]);
    assert.equal(exited.body.exitCode, 3);
  });

  it("stops at a line of a kernel, shows its variables, steps and steps back", async () => {
    const stop = client.waitForEvent("stopped");
    await client.hitBreakpoint(LAUNCH, { path: PROGRAM, line: line("add") });
    const threadId: number = (await stop).body.threadId;
    const threads = (await client.threadsRequest()).body.threads.map((one) => one.name);
    assert.deepEqual(threads, ["summed program 0", "summed program 1"]);

    const frame = await topOf(threadId);
    assert.equal(frame.name, "summed");
    const before = await variables(frame.id);
    assert.equal(before.get("start")?.value, "0");
    assert.equal(before.get("total")?.value, "fp32[4] [0 0 0 0]");
    const tile = before.get("x")!;
    const children = await client.variablesRequest({
      variablesReference: tile.variablesReference,
    });
    assert.deepEqual(
      children.body.variables.map((one) => one.value),
      ["0", "1", "2", "3"],
    );
    assert.equal(await value("x.sum() + pid", frame.id), "6");

    const [, after, reason] = await stopAfter(() => client.nextRequest({ threadId }));
    assert.equal(reason, "step");
    assert.notEqual(after.line, line("add"));
    assert.equal((await variables(after.id)).get("total")?.value, "fp32[4] [0 1 2 3]");

    const [, back] = await stopAfter(() => client.stepBackRequest({ threadId }));
    assert.equal(back.line, line("add"));
    assert.equal((await variables(back.id)).get("total")?.value, "fp32[4] [0 0 0 0]");
  });

  it("stops where a condition holds, and runs backwards to where it held before", async () => {
    const condition = "pid == 1 and start >= 4";
    const stop = client.waitForEvent("stopped");
    const [answer] = await launched({ line: line("add"), condition });
    assert.ok(answer?.verified, answer?.message);
    const threadId: number = (await stop).body.threadId;
    const frame = await topOf(threadId);
    assert.equal(await value("(pid, start)", frame.id), "(1, 4)");

    const [, next] = await stopAfter(() => client.continueRequest({ threadId }));
    assert.equal(await value("start", next.id), "8");
    const [, back] = await stopAfter(() => client.reverseContinueRequest({ threadId }));
    assert.equal(await value("start", back.id), "4");

    await client.setBreakpointsRequest({ source: { path: PROGRAM }, breakpoints: [] });
    const [exited] = await Promise.all([
      client.waitForEvent("exited"),
      client.continueRequest({ threadId }),
    ]);
    assert.equal(exited.body.exitCode, 3);
  });

  it("says why a breakpoint cannot be, and goes on", async () => {
    const exited = client.waitForEvent("exited");
    const [answer] = await launched({ line: line("host") });
    assert.equal(answer?.verified, false);
    assert.match(answer?.message ?? "", /no kernel has this line/);
    assert.equal((await exited).body.exitCode, 3);
  });

  it("shares a process with debugpy, which stops at lines of the host", async function () {
    if (spawnSync(PYTHON, ["-c", "import debugpy"]).status !== 0) {
      this.skip();
    }
    const host = await started("debugpy.adapter", "debugpy");
    const waiting = host.waitForEvent("debugpyWaitingForServer");
    const begun = host.waitForEvent("initialized");
    await host.initializeRequest();
    const attached = host.attachRequest({ listen: { host: "127.0.0.1", port: 0 } } as object);
    const address = `127.0.0.1:${(await waiting).body.port}`;
    const args = ["--connect", address, "--wait-for-client", PROGRAM, "3"];

    const stop = client.waitForEvent("stopped");
    const [answer] = await launched({ line: line("add") }, { module: "debugpy", args });
    assert.ok(answer?.verified, answer?.message);
    await begun;
    const source = { path: PROGRAM };
    await host.setBreakpointsRequest({ source, breakpoints: [{ line: line("host") }] });
    await host.configurationDoneRequest();
    await attached;
    const threadId: number = (await stop).body.threadId;
    assert.equal(await value("start", (await topOf(threadId)).id), "0");

    await client.setBreakpointsRequest({ source, breakpoints: [] });
    const atHost = host.assertStoppedLocation("breakpoint", { line: line("host") });
    await client.continueRequest({ threadId });
    await atHost;
    const exited = client.waitForEvent("exited");
    await host.stop();
    assert.equal((await exited).body.exitCode, 3);
  });

  it("refuses a wrong launch by what is wrong with it", async () => {
    await assert.rejects(client.launch({ program: "none.py" }), /none\.py: no such file/);
    await assert.rejects(client.launchRequest({}), /expected either `program`/);
  });
});
