// La conversación: mensajes, respuesta según sale, parar, copiar y empezar otra.

import { follow } from "./follow.js";
import { copy } from "./notices.js";
import { answer } from "./talk.js";

const SVG = "http://www.w3.org/2000/svg";
const COPY = "M9 9h10v10H9zM5 15V5h10";
const MARGIN = 2048;
const element = (id) => document.getElementById(id);

export function startChat(view) {
  const chat = new Chat(view);
  element("chat").hidden = element("composer").hidden = false;
  element("keys").textContent = "Enter envía · Mayús + Enter, otra línea · Esc para la respuesta";
  element("message").focus();
  return chat;
}

class Chat {
  constructor({ model, token, settings, notices }) {
    Object.assign(this, { model, token, settings, notices });
    this.turns = [];
    this.running = null;
    this.field = element("message");
    this.toEnd = follow(element("content"), element("log"));
    element("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    element("stop-chat").addEventListener("click", () => this.stop());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.stop();
    });
    element("fresh").addEventListener("click", () => this.fresh());
    for (const idea of element("welcome").querySelectorAll(".idea")) {
      idea.addEventListener("click", () => {
        this.field.value = idea.textContent;
        this.field.focus();
      });
    }
  }

  async send() {
    const question = this.field.value.trim();
    if (!question || this.running) return;
    this.notices.clear();
    this.notices.say("Enviado; el modelo está contestando");
    this.field.value = "";
    element("welcome").hidden = true;
    this.turns.push({ role: "user", content: question });
    const asked = this.add("user", question);
    const reply = this.add("assistant", "");
    const wrote = await this.reply(reply);
    if (wrote) return;
    // Sin respuesta, el mensaje vuelve a su sitio para poder enviarlo otra vez.
    asked.remove();
    reply.remove();
    this.turns.pop();
    this.field.value ||= question;
    element("welcome").hidden = this.turns.length > 0;
  }

  async reply(item) {
    const said = item.querySelector(".said");
    const controller = new AbortController();
    this.busy(controller);
    said.classList.add("waiting");
    let text = "";
    try {
      const body = { messages: this.messages(), truncation: "auto", ...this.settings.values };
      for await (const piece of answer("v1/chat/completions", body, this.token, controller.signal)) {
        if (piece.text) {
          said.classList.replace("waiting", "writing");
          text += piece.text;
          said.append(piece.text);
        }
        this.explain(piece);
      }
    } catch (error) {
      if (!controller.signal.aborted) this.notices.problem(error.message);
    }
    said.classList.remove("waiting", "writing");
    this.busy(null);
    if (!text) {
      this.notices.say("No hay respuesta");
      return false;
    }
    this.turns.push({ role: "assistant", content: text });
    item.append(this.copyButton(text));
    this.notices.say(`Respuesta: ${text}`);
    return true;
  }

  explain({ finish, forgotten, usage }) {
    if (forgotten) this.notices.note("La conversación ya no cabe entera: el modelo olvida lo más antiguo");
    if (finish === "length") this.cut = true;
    if (!usage || !this.cut) return;
    this.cut = false;
    this.notices.note(
      usage.total_tokens >= this.model.context
        ? "Se para aquí: la conversación llena lo que este modelo puede leer. Si sigues, olvidará lo más antiguo"
        : "Se para al llegar a la longitud máxima; se cambia en Ajustes",
    );
  }

  /** Lo último que cabe en una petición, sin partir una pregunta de su respuesta. */
  messages() {
    const system = this.settings.system ? [{ role: "system", content: this.settings.system }] : [];
    const encoder = new TextEncoder();
    let kept = this.turns;
    while (kept.length > 2 && encoder.encode(JSON.stringify(kept)).length + MARGIN > this.model.body_bytes) {
      kept = kept.slice(2);
    }
    return [...system, ...kept];
  }

  stop() {
    this.running?.abort();
  }

  fresh() {
    this.stop();
    this.turns = [];
    element("log").replaceChildren();
    element("welcome").hidden = false;
    this.notices.clear();
    this.notices.say("Conversación nueva");
    this.field.focus();
  }

  busy(controller) {
    this.running = controller;
    const focused = [element("send"), element("stop-chat")].includes(document.activeElement);
    element("send").hidden = controller !== null;
    element("stop-chat").hidden = controller === null;
    if (focused) (controller ? element("stop-chat") : this.field).focus();
  }

  add(role, content) {
    const item = document.createElement("li");
    item.className = `turn ${role}`;
    const who = document.createElement("span");
    who.className = "hidden";
    who.textContent = role === "user" ? "Tú:" : `${this.model.id}:`;
    const said = document.createElement("div");
    said.className = "said";
    said.textContent = content;
    item.append(who, said);
    element("log").append(item);
    this.toEnd();
    return item;
  }

  copyButton(text) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copy";
    const icon = document.createElementNS(SVG, "svg");
    icon.setAttribute("viewBox", "0 0 24 24");
    icon.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", COPY);
    icon.append(path);
    const label = document.createElement("span");
    label.textContent = "Copiar";
    button.append(icon, label);
    button.addEventListener("click", () => copy(text, button, this.notices));
    return button;
  }
}
