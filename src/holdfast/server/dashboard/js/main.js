/** Starts the dashboard: session, shell, page. */

import { get, getIfThere, onNewVersion, onUnauthenticated, post, Problem } from "./api.js";
import { everySecond, sync, time } from "./clock.js";
import { readCounts } from "./counts.js";
import { el, replace, setText, withQuery } from "./dom.js";
import { store, stored } from "./format.js";
import { startKeys } from "./keys.js";
import { onLiveState, stop, toggle } from "./live.js";
import { can, loadMe, who } from "./me.js";
import { dialog, isDialogOpen } from "./parts/dialog.js";
import { facts, problemBox } from "./parts/states.js";
import { toast } from "./parts/toast.js";
import { go, show, startRouter } from "./router.js";
import { glyph } from "./status.js";

const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const THEMES = ["system", "light", "dark"];

/** Takes the one-time code out of the address, so that it is not kept in the history. */
function takeCode() {
  const found = /^#code=(.+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return decodeURIComponent(found[1]);
}

function startTheme() {
  const draw = () => {
    const chosen = stored("holdfast.theme") ?? "system";
    document.documentElement.classList.remove("light", "dark");
    if (chosen !== "system") document.documentElement.classList.add(chosen);
    replace(byId("theme"), glyph("theme"), el("span", { class: "wide" }, chosen));
    byId("theme").setAttribute("aria-label", `Theme: ${chosen}. Change it`);
  };
  byId("theme").addEventListener("click", () => {
    const chosen = stored("holdfast.theme") ?? "system";
    store("holdfast.theme", THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]);
    draw();
  });
  draw();
}

const LIVE = /** @type {const} */ ({ live: ["live", "live"], lost: ["claimed", "reconnecting"], paused: ["paused", "paused"], polling: ["polling", "every 10 s"], off: ["polling", "not live"] });

function startLive() {
  onLiveState((state) => {
    const [sign, text] = LIVE[state];
    byId("live").dataset.state = state;
    replace(byId("live"), glyph(sign), text);
    byId("live").setAttribute("aria-label", `Updates: ${text}. ${state === "paused" ? "Resume" : "Pause"}`);
  });
  byId("live").addEventListener("click", toggle);
}

function startFind() {
  byId("find").addEventListener("submit", async (event) => {
    event.preventDefault();
    const input = /** @type {HTMLInputElement} */ (byId("find-text"));
    const text = input.value.trim();
    if (!text) return;
    input.value = "";
    // A number is the id of a job, and may be the name or the key of something else: the list of jobs offers all of them.
    if (/^#?\d+$/.test(text)) return go(withQuery("/jobs", { text: text.replace("#", "") }));
    const [queues, workers] = await Promise.all([getIfThere("/v1/queues", undefined, { queues: [] }), getIfThere("/v1/workers", undefined, { workers: [] })]);
    if (queues.queues.some((/** @type {any} */ one) => one.name === text)) return go(`/queues/${encodeURIComponent(text)}`);
    if (workers.workers.some((/** @type {any} */ one) => one.name === text)) return go(`/workers/${encodeURIComponent(text)}`);
    go(withQuery("/jobs", { text }));
  });
}

function startMenu() {
  const nav = byId("nav");
  const open = (/** @type {boolean} */ isOpen) => {
    nav.classList.toggle("open", isOpen);
    byId("menu").setAttribute("aria-expanded", String(isOpen));
  };
  byId("menu").addEventListener("click", () => open(!nav.classList.contains("open")));
  nav.addEventListener("click", () => open(false));
}

async function readTime() {
  const sentAt = performance.now();
  const found = await get("/v1/now");
  sync(found.now, sentAt);
}

async function begin() {
  const began = performance.now();
  // Ages and charts need the ledger's time from the beginning.
  const [me] = await Promise.all([loadMe(), readTime()]);
  setText(byId("who"), `${me.name} (${me.role})`);
  for (const one of document.querySelectorAll("#nav [data-needs]")) {
    /** @type {HTMLElement} */ (one).hidden = !can(/** @type {HTMLElement} */ (one).dataset.needs ?? "");
  }
  getIfThere("/v1/ledger").then((found) => setText(byId("ledger"), found ? `ledger ${found.ledger_id}` : "")).catch(() => null);
  if (location.pathname === "/login") history.replaceState(null, "", "/");
  await show();
  await readCounts(began);
}

/** Says who is signed in and until when, and offers to sign out. */
async function showWho() {
  const me = who();
  if (!me) return;
  const isOut = await dialog(`${me.name} (${me.role})`, (close) => [
    facts(["queues", me.queues.join(", ")], ["session ends", me.expires_at ? time(me.expires_at) : null]),
    el("p", { class: "muted" }, "The page shows only what this role may do."),
    el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, on: { click: () => close(null) } }, "Stay"), el("button", { type: "button", "data-confirm": true, on: { click: () => close(true) } }, "Sign out")),
  ]);
  if (!isOut) return;
  const left = await post("/auth/logout").catch(() => null);
  location.assign(left?.provider ?? "/");
}

let isAsking = false;

/** The session is over, or there was none. What the page shows, and what was typed, stays behind the dialog. */
async function askToLogIn() {
  if (isAsking || isDialogOpen()) return;
  isAsking = true;
  stop();
  const { loginDialog } = await import("./pages/login.js");
  await loginDialog();
  isAsking = false;
  await begin();
}

async function start() {
  startTheme();
  startLive();
  startFind();
  startMenu();
  startKeys();
  startRouter();
  byId("who").addEventListener("click", showWho);
  onUnauthenticated(() => askToLogIn());
  onNewVersion((version) => toast(`Holdfast was updated to ${version}. Reload the page.`, { stays: true, href: location.href, label: "Reload" }));
  everySecond(() => readCounts());
  const code = takeCode();
  try {
    if (code) await post("/v1/session", { code }).catch((error) => toast(error.message));
    await begin();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return;
    byId("page").replaceChildren(el("h1", { tabindex: "-1" }, "Holdfast cannot be reached"), problemBox(error, () => location.reload()));
  }
}

start();
