// Arranque: qué modelo hay, con qué token, y qué vista le toca.

import { startChat } from "./chat.js";
import { Notices } from "./notices.js";
import { Settings } from "./settings.js";
import { ServerError, readModel } from "./talk.js";
import { startText } from "./text.js";

const TOKEN = "enlace-token";
const element = (id) => document.getElementById(id);
const notices = new Notices();

function keptToken() {
  // El token llega detrás de «#», que el navegador no envía a nadie, y se quita de la dirección.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(TOKEN) ?? "";
}

function askToken(wrong) {
  const dialog = element("entry");
  element("token").value = "";
  element("token-help").textContent = wrong
    ? "Ese no es. Lo enseña la terminal en la que se abrió el servidor."
    : "Lo enseña la terminal en la que se abrió el servidor.";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    element("entry-form").addEventListener(
      "submit",
      () => {
        sessionStorage.setItem(TOKEN, element("token").value.trim());
        resolve();
      },
      { once: true },
    );
  });
}

async function open() {
  for (let tries = 0; ; tries += 1) {
    const token = keptToken();
    try {
      return { token, model: await readModel(token) };
    } catch (error) {
      if (!(error instanceof ServerError) || error.status !== 401) throw error;
      await askToken(tries > 0 || token !== "");
    }
  }
}

async function start() {
  const { token, model } = await open();
  document.title = `${model.id} · ENLACE`;
  element("name").textContent = model.id;
  element("kind").textContent = model.chats ? "Conversa en español" : "Completa texto; todavía no conversa";
  const settings = new Settings(model);
  element("fresh").hidden = element("tune").hidden = false;
  const view = { model, token, settings, notices };
  if (model.chats) startChat(view);
  else startText(view);
}

start().catch((error) => notices.problem(error.message));
