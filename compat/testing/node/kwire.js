// A broker in a process of its own, and its control port.
const { spawn } = require("node:child_process");
const { mkdtempSync, readFileSync, rmSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { createInterface } = require("node:readline");

class Kwire {
  static async start() {
    const folder = mkdtempSync(join(tmpdir(), "kwire-"));
    const file = join(folder, "control.json");
    const words = ["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--control-file", file];
    const child = spawn("kwire", words, { stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the broker does not start: ${code}`)));
      createInterface(child.stdout).once("line", (first) => resolve([first]));
    });
    if (!line.startsWith("kwire ready ")) throw new Error(line);
    const told = JSON.parse(readFileSync(file));
    rmSync(folder, { recursive: true });
    return new Kwire(child, told);
  }

  constructor(child, { url, token, bootstrap_servers }) {
    this.child = child;
    this.url = url;
    this.token = token;
    this.brokers = bootstrap_servers.split(",");
  }

  async ask(method, path, body) {
    const answer = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Bearer ${this.token}` },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error);
    return value;
  }

  stop() {
    this.child.removeAllListeners("exit");
    return new Promise((resolve) => {
      this.child.once("exit", resolve);
      this.child.kill();
    });
  }
}

module.exports = { Kwire };
