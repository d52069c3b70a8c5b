/** The proof of a job: states, the key that is trusted, and the check in this browser. */

import { get, Problem } from "../api.js";
import { time } from "../clock.js";
import { el, replace } from "../dom.js";
import { count, fullTime, store, stored } from "../format.js";
import { command } from "../parts/states.js";
import { glyph } from "../status.js";
import { canVerify, verify } from "./verify.js";

const PIN = "holdfast.key.";

/** The key that this browser trusts for a ledger. @param {string} ledgerId @returns {{key: string, at: number} | null} */
function pinned(ledgerId) {
  const text = stored(PIN + ledgerId);
  return text ? JSON.parse(text) : null;
}

/** @param {number} jobId @param {AbortSignal} signal @param {() => any} job The job as the page shows it. */
export async function panel(jobId, signal, job) {
  let data;
  try {
    data = await get(`/v1/jobs/${jobId}/inclusion`, signal);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return el("div", null, el("p", null, `Not sealed yet. ${error.message}`), el("p", { class: "muted" }, error.action), command("holdfast seal"));
  }
  const keys = (await get("/v1/keys", signal)).keys.filter((/** @type {any} */ key) => key.role === "server");
  const known = pinned(data.ledger_id);
  const field = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "proof-key", class: "mono", value: known?.key ?? keys.at(-1)?.public ?? "", maxlength: "64", size: "66", spellcheck: "false" }));
  const state = el("p", { class: "answer", "data-proof": "sealed" }, glyph("note"), `Sealed, not checked: ${count(data.events.length, "event")} under the head of `, time(data.head.at, { ago: true }), data.unsealed ? `; ${count(data.unsealed, "event")} not sealed yet.` : ".");
  const steps = el("ul", { class: "findings" });
  const trust = el("p", { class: "muted" }, trustText(known));
  const check = el("button", { type: "button", "data-verify": true, on: { click: run } }, "Verify in this browser");
  const pin = el("button", { type: "button", on: { click: remember } }, "Trust this key from now on");

  async function run() {
    if (!(await canVerify())) {
      replace(state, glyph("warning"), "This browser cannot check Ed25519 signatures. Use the command below.");
      return;
    }
    const { args, result } = job();
    const found = await verify(data, field.value.trim().toLowerCase(), { args, result });
    const hidden = found.filter((step) => step.hidden).length;
    const bad = found.filter((step) => !step.ok);
    const isPinned = pinned(data.ledger_id)?.key === field.value.trim().toLowerCase();
    state.dataset.proof = bad.length ? "broken" : "verified";
    if (bad.length) replace(state, glyph("failed"), `Does not verify: ${bad[0].what}${bad[0].detail ? ` (${bad[0].detail})` : ""}.`);
    else replace(state, glyph("succeeded"), `Verified here: ${count(data.events.length, "event")}${hidden ? `; your role may not see all contents, so those of ${count(hidden, "event")} were not checked` : " with their contents"}${isPinned ? "" : ". The key came from this server, which proves little: compare it with the one that your operator has"}.`);
    replace(steps, ...found.map((step) => el("li", null, glyph(step.hidden ? "note" : step.ok ? "well" : "failed"), step.what, step.hidden ? ", without its contents" : null, step.detail ? el("span", { class: "muted" }, ` ${step.detail}`) : null)));
  }

  function remember() {
    store(PIN + data.ledger_id, JSON.stringify({ key: field.value.trim().toLowerCase(), at: Date.now() }));
    replace(trust, trustText(pinned(data.ledger_id)));
  }

  return el("div", null,
    state,
    el("label", { for: "proof-key" }, "Server key (64 hex digits). Paste the one that your operator has."),
    field,
    trust,
    el("div", { class: "chips" }, check, pin),
    steps,
    el("p", { class: "muted" }, "The browser hashes each event and its contents, follows its path to the root, and checks the signature of the head. The command also checks signatures of workers and operators."),
    el("p", null, el("a", { href: `/v1/jobs/${jobId}/proof`, download: `job-${jobId}.jsonl` }, "Download the proof")),
    command(`holdfast verify job-${jobId}.jsonl`),
  );
}

/** @param {{at: number} | null} known */
function trustText(known) {
  return known ? `This browser trusts this key since ${fullTime(known.at)}.` : "This browser trusts no key of this ledger yet.";
}
