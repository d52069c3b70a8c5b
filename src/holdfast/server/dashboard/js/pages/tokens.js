/** Tokens: who may use this server? */

import { get, post } from "../api.js";
import { time } from "../clock.js";
import { el, path } from "../dom.js";
import { count } from "../format.js";
import { can } from "../me.js";
import { sendButton } from "../parts/confirm.js";
import { dialog } from "../parts/dialog.js";
import { listPage } from "../parts/listpage.js";
import { command, empty } from "../parts/states.js";
import { toast } from "../parts/toast.js";

const ROLES = ["reader", "client", "worker", "operator", "admin"];

/** @param {() => Promise<void>} reload */
async function create(reload) {
  const role = /** @type {HTMLSelectElement} */ (el("select", { id: "token-role", autofocus: true }, ...ROLES.map((name) => el("option", { value: name }, name))));
  const name = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "token-name", required: true, maxlength: "100" }));
  const queues = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "token-queues", value: "*" }));
  const expires = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "token-expires", value: "90d" }));
  const body = await dialog("New token", (close) => [
    el("label", { for: "token-role" }, "Role"), role,
    el("label", { for: "token-name" }, "Name"), name,
    el("label", { for: "token-queues" }, "Queues (patterns, separated by commas)"), queues,
    el("label", { for: "token-expires" }, "Ends after (empty: never)"), expires,
    el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => close(null) } }, "Close"),
      el("button", { type: "button", "data-confirm": true, on: { click: () => close({ role: role.value, name: name.value.trim(), queues: queues.value.split(",").map((one) => one.trim()).filter(Boolean), ...(expires.value.trim() ? { expires: expires.value.trim() } : {}) }) } }, "Make the token")),
  ]);
  if (!body) return;
  try {
    const made = await post("/v1/tokens", body);
    await dialog("The token is shown only now", (close) => [el("p", null, "Copy it. The server keeps only its hash."), command(made.text), el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, on: { click: () => close(true) } }, "I have it"))]);
  } catch (/** @type {any} */ error) {
    toast(`${error.message} ${error.action ?? ""}`);
  }
  await reload();
}

const page = listPage({
  title: "Tokens",
  polls: true,
  load: async ({ signal }) => (await get("/v1/tokens?limit=1000", signal)).tokens,
  answer: (tokens) => `${count(tokens.filter((/** @type {any} */ one) => !one.revoked_at).length, "token")} can be used.`,
  actions: (reload) => [can("tokens") ? el("button", { type: "button", on: { click: () => create(reload) } }, "New token…") : null],
  columns: (reload) => [
    { name: "Id", cell: (/** @type {any} */ token) => el("span", { class: "mono" }, token.id) },
    { name: "Name", cell: (token) => token.name, cut: true },
    { name: "Role", cell: (token) => token.role },
    { name: "Queues", cell: (token) => token.queues.join(", "), cut: true },
    { name: "Made", cell: (token) => [time(token.created_at, { ago: true }), token.created_by ? ` by ${token.created_by}` : ""] },
    { name: "Last used", cell: (token) => (token.last_used_at ? time(token.last_used_at, { ago: true }) : "never") },
    { name: "Ends", cell: (token) => (token.revoked_at ? ["revoked ", time(token.revoked_at, { ago: true })] : token.expires_at ? time(token.expires_at) : "never") },
    { name: "", cell: (token) => (token.revoked_at ? null : sendButton({ verb: "tokens", label: "Revoke", question: `Revoke the token of ${token.name}?`, effect: "Requests with it are refused within 5 s, and its browser sessions end.", command: `holdfast token revoke ${token.id}`, method: "DELETE", path: path("v1", "tokens", token.id), done: "The token is revoked.", reload })) },
  ],
  key: (token) => token.id,
  empty: () => empty("There are no tokens."),
});
export const { title, load, watch, draw, update, leave } = page;
