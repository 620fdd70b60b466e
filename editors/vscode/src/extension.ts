/** Starts `tkdebug dap`, or connects to a process that called `tkdebug.debugger.listen()`. */

import * as vscode from "vscode";

const TYPE = "tkdebug";
const LOOPBACK = "127.0.0.1";
const PYTHON_EXTENSION = "ms-python.python";
const THIS_FILE: vscode.DebugConfiguration = {
  type: TYPE,
  request: "launch",
  name: "tkdebug: this file",
  program: "${file}",
};

export function activate(context: vscode.ExtensionContext): void {
  const configurations = new ConfigurationProvider();
  const onDemand = vscode.DebugConfigurationProviderTriggerKind.Dynamic;
  context.subscriptions.push(
    vscode.debug.registerDebugConfigurationProvider(TYPE, configurations),
    vscode.debug.registerDebugConfigurationProvider(TYPE, configurations, onDemand),
    vscode.debug.registerDebugAdapterDescriptorFactory(TYPE, new AdapterFactory()),
  );
}

/** Fills in what a configuration leaves out; VS Code replaces variables such as `${file}` later. */
class ConfigurationProvider implements vscode.DebugConfigurationProvider {
  provideDebugConfigurations(): vscode.DebugConfiguration[] {
    return [{ ...THIS_FILE }];
  }

  async resolveDebugConfiguration(
    folder: vscode.WorkspaceFolder | undefined,
    given: vscode.DebugConfiguration,
  ): Promise<vscode.DebugConfiguration | undefined> {
    const isMissing = !given.type && !given.request && !given.name;
    if (isMissing && vscode.window.activeTextEditor?.document.languageId !== "python") {
      return refuse("tkdebug: open the Python script to debug, or write a launch.json");
    }
    const configuration = isMissing ? { ...given, ...THIS_FILE } : { ...given };
    if (configuration.request === "attach") {
      return withAddress(configuration);
    }
    configuration.cwd ??= folder === undefined ? "${fileDirname}" : "${workspaceFolder}";
    configuration.python ??= await interpreter(folder);
    return configuration;
  }
}

/** Runs the adapter, or finds the one that runs. */
class AdapterFactory implements vscode.DebugAdapterDescriptorFactory {
  createDebugAdapterDescriptor(session: vscode.DebugSession): vscode.DebugAdapterDescriptor {
    const configuration = session.configuration;
    if (configuration.request === "attach") {
      return new vscode.DebugAdapterServer(configuration.port, LOOPBACK);
    }
    // Variables such as PYTHONPATH only count when Python starts. The adapter checks `env` itself.
    return new vscode.DebugAdapterExecutable(configuration.python, ["-m", TYPE, "dap"], {
      env: texts(configuration.env),
    });
  }
}

async function withAddress(
  configuration: vscode.DebugConfiguration,
): Promise<vscode.DebugConfiguration | undefined> {
  const port: unknown = configuration.port;
  if (!Number.isInteger(port) || Number(port) < 1 || Number(port) > 65535) {
    return refuse(`tkdebug: port is ${JSON.stringify(port)}, expected a number from 1 to 65535`);
  }
  configuration.token ||= await vscode.window.showInputBox({
    prompt: `The token that tkdebug.debugger.listen(${port}) printed`,
    ignoreFocusOut: true,
  });
  return configuration.token ? configuration : undefined;
}

/** The Python that the user has chosen: its extension knows, or a setting, or it is `python3`. */
async function interpreter(folder: vscode.WorkspaceFolder | undefined): Promise<string> {
  if (vscode.extensions.getExtension(PYTHON_EXTENSION) !== undefined) {
    const argument = { workspaceFolder: folder?.uri.fsPath };
    const active: unknown = await vscode.commands.executeCommand("python.interpreterPath", argument);
    if (typeof active === "string" && active !== "") {
      return active;
    }
  }
  const settings = vscode.workspace.getConfiguration("python", folder);
  return settings.get<string>("defaultInterpreterPath") || "python3";
}

function texts(env: unknown): Record<string, string> {
  const given = Object.entries(typeof env === "object" && env !== null ? env : {});
  return Object.fromEntries(given.filter(([, value]) => typeof value === "string"));
}

function refuse(message: string): undefined {
  void vscode.window.showErrorMessage(message);
  return undefined;
}
