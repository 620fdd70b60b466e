// Debugs a kernel in the page of a code-server, and writes what the page shows as JSON, one object a line.
// Arguments: playwright-core's folder, the browser, the page's address, the line to stop at.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [playwright, browserPath, address, line] = process.argv.slice(2);
const entry = createRequire(pathToFileURL(playwright + "/")).resolve("playwright-core");
const { chromium } = await import(pathToFileURL(entry).href).then((found) => found.default ?? found);

const tell = (what) => console.log(JSON.stringify(what));
const STOPPED = ".debug-top-stack-frame-line, .debug-top-stack-frame-column";

const browser = await chromium.launch({
  executablePath: browserPath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const page = await browser.newPage({ viewport: { width: 1500, height: 950 } });
page.setDefaultTimeout(60000);
const rows = async (within) =>
  (await page.locator(`${within} .monaco-list-row`).allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());

// The number beside the line that is lit as the one stopped at; 0 where none is.
const litLine = () =>
  page.evaluate(() => {
    const top = (element) => element.getBoundingClientRect().top;
    const lit = document.querySelector(".view-overlays .debug-top-stack-frame-line, .view-overlays .debug-focused-stack-frame-line");
    if (!lit) return 0;
    const numbers = [...document.querySelectorAll(".margin-view-overlays .line-numbers")];
    const beside = numbers.find((element) => Math.abs(top(element) - top(lit)) < 3);
    return beside ? Number(beside.textContent) : 0;
  });

// The scope of variables, open; editors do that by themselves, but for a narrow view.
async function openScope() {
  const scope = page.locator(".debug-variables .monaco-list-row[aria-expanded='false']", { hasText: /^Variables/ });
  if (await scope.count()) await scope.first().locator(".monaco-tl-twistie").click().catch(() => {});
}

// The state of the session, once it is as wanted or has not become so in a while.
async function shown(step, wanted) {
  const state = {};
  for (let tries = 0; tries < 60; tries++) {
    state.line = await litLine();
    state.variables = await rows(".debug-variables");
    if (wanted(state)) break;
    await openScope();
    await page.waitForTimeout(500);
  }
  await page.waitForTimeout(700); // values may come behind names
  state.variables = await rows(".debug-variables");
  tell({ step, ...state });
}

const isAt = (state) => state.line === Number(line) && state.variables.length > 3;
const isElsewhere = (state) => state.line > 0 && state.line !== Number(line) && state.variables.length > 3;

process.on("uncaughtException", async (error) => {
  console.error(`Error: ${error.message.split("\n").slice(0, 3).join(" ")}`);
  if (process.env.EDITOR_PICTURE) await page.screenshot({ path: process.env.EDITOR_PICTURE });
  process.exit(1);
});

await page.goto(address);
await page.locator(".monaco-workbench").waitFor();
await page.locator(".explorer-folders-view .monaco-list-row", { hasText: "kernels.py" }).dblclick();
await page.locator(".monaco-editor .view-lines").first().waitFor();
await page.waitForTimeout(1500);
tell({ step: "editor" });
// Keys are lost while the editor still starts: what they do is looked at, and they are pressed again.
const dot = page.locator(".monaco-editor .glyph-margin-widgets [class*='debug-breakpoint']").first();
for (let tries = 0; tries < 10 && !(await dot.isVisible()); tries++) {
  await page.locator(".monaco-editor .view-lines").first().click();
  await page.keyboard.press("Control+G");
  await page.waitForTimeout(700);
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
  await page.waitForTimeout(700);
  await page.keyboard.press("F9");
  await dot.waitFor({ timeout: 4000 }).catch(() => {});
}
await dot.waitFor({ timeout: 1000 });
tell({ step: "breakpoint" });
await page.keyboard.press("F5");
await page.locator(STOPPED).first().waitFor();
await shown("stopped", isAt);
await page.keyboard.press("F10");
await shown("stepped", isElsewhere);
await page.locator(".debug-toolbar [aria-label*='Step Back']").first().click();
await shown("stepped back", isAt);
await browser.close();
