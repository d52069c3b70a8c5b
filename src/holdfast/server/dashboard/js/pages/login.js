/** Signing in with a token, or by the identity provider of the server. */

import { getIfThere, post } from "../api.js";
import { el } from "../dom.js";
import { dialog } from "../parts/dialog.js";
import { command } from "../parts/states.js";

export const title = () => "Sign in";
export const load = async () => null;

/** @param {HTMLElement} root */
export function draw(root) {
  root.append(el("h1", { tabindex: "-1" }, "Signed in"), el("p", null, el("a", { href: "/" }, "Go to the overview.")));
}

/** Asks for a token until the server takes one. */
export async function loginDialog() {
  const { provider } = await getIfThere("/auth/options", undefined, { provider: null }).catch(() => ({ provider: null }));
  while (!(await ask(provider)));
}

/** @param {string | null} provider @returns {Promise<boolean | null>} */
function ask(provider) {
  return dialog("Sign in to Holdfast", (close) => {
    const field = /** @type {HTMLInputElement} */ (
      el("input", { type: "password", id: "token", autocomplete: "off", required: true, autofocus: true, spellcheck: "false" })
    );
    const said = el("p", { role: "alert", class: "login-problem" });
    const button = /** @type {HTMLButtonElement} */ (el("button", { type: "submit" }, "Sign in"));
    const form = el("form", null, el("label", { for: "token" }, "Token"), field, said, el("div", { class: "buttons" }, button));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await post("/v1/session", { token: field.value.trim() });
        close(true);
      } catch (/** @type {any} */ error) {
        said.textContent = `${error.message} ${error.action ?? ""}`;
        field.select();
      } finally {
        button.disabled = false;
      }
    });
    return [
      provider === null ? null : el("p", null, el("a", { href: "/auth/login", id: "provider" }, `Sign in with ${provider}`)),
      el("p", null, `${provider === null ? "This page needs a token." : "Or use a token."} It is sent once, and the browser keeps a session instead of it.`),
      form,
      el("p", { class: "muted" }, "A new token is made with:"),
      command("holdfast token new --role operator --name YOU"),
    ];
  });
}
