// El texto que se continúa: se escribe, el modelo sigue, se corrige y se vuelve a seguir.

import { follow } from "./follow.js";
import { copy } from "./notices.js";
import { answer } from "./talk.js";

const MARGIN = 2048;
const element = (id) => document.getElementById(id);

export function startText(view) {
  element("fresh-label").textContent = "Texto nuevo";
  element("text").hidden = element("tools").hidden = false;
  element("keys").textContent = "Ctrl + Enter continúa · Esc para";
  element("draft").focus();
  return new Text(view);
}

class Text {
  constructor({ model, token, settings, notices }) {
    Object.assign(this, { model, token, settings, notices });
    this.running = null;
    this.before = [];
    this.mark = [0, 0];
    this.field = element("draft");
    this.toEnd = follow(element("content"), element("mirror"));
    this.field.addEventListener("input", () => {
      this.mark = [0, 0];
      this.show();
    });
    element("go").addEventListener("click", () => this.go());
    element("stop-text").addEventListener("click", () => this.stop());
    element("undo").addEventListener("click", () => this.undo());
    element("copy-text").addEventListener("click", (event) => copy(this.field.value, event.currentTarget, notices));
    element("fresh").addEventListener("click", () => this.fresh());
    document.addEventListener("keydown", (event) => {
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "Escape") this.stop();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.go();
    });
    for (const idea of element("beginnings").querySelectorAll(".idea")) {
      idea.addEventListener("click", () => {
        this.put(idea.textContent, [0, 0]);
        this.field.focus();
      });
    }
    this.show();
  }

  async go() {
    const beginning = this.field.value;
    if (this.running) return;
    if (!beginning.trim()) {
      this.notices.note("Escribe antes un principio");
      this.field.focus();
      return;
    }
    this.notices.clear();
    this.notices.say("El modelo está escribiendo");
    const controller = new AbortController();
    this.toEnd();
    this.busy(controller);
    let text = "";
    let finish = null;
    try {
      const body = { prompt: this.tail(beginning), truncation: "auto", ...this.settings.values };
      for await (const piece of answer("v1/completions", body, this.token, controller.signal)) {
        text += piece.text;
        finish = piece.finish ?? finish;
        if (piece.text) this.put(beginning + text, [beginning.length, beginning.length + text.length]);
        if (piece.forgotten) this.notices.note("El texto ya no cabe entero: el modelo solo lee el final");
      }
    } catch (error) {
      if (!controller.signal.aborted) this.notices.problem(error.message);
    }
    if (text) this.before.push(beginning);
    this.busy(null);
    this.notices.say(text ? `Ha escrito: ${text}` : "No ha escrito nada");
    if (!text && finish === "stop") this.notices.note("Para el modelo, el texto acaba ahí");
  }

  /** El final que cabe en una petición. */
  tail(text) {
    let kept = text;
    while (new TextEncoder().encode(JSON.stringify(kept)).length + MARGIN > this.model.body_bytes) {
      kept = kept.slice(Math.ceil(kept.length / 8));
    }
    return kept;
  }

  put(text, mark) {
    this.field.value = text;
    this.mark = mark;
    this.show();
  }

  /** Pinta detrás del texto lo último que escribió el modelo; de paso, da su alto al campo. */
  show() {
    const text = this.field.value;
    const [start, end] = this.mark;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(start, end);
    // Un salto final no ocupa línea si no lo sigue nada.
    element("mirror").replaceChildren(text.slice(0, start), mark, `${text.slice(end)}\u200b`);
    element("beginnings").hidden = text !== "";
    element("copy-text").disabled = text === "";
    element("undo").disabled = this.before.length === 0 || this.running !== null;
  }

  stop() {
    this.running?.abort();
  }

  undo() {
    this.put(this.before.pop(), [0, 0]);
    this.notices.clear();
    this.notices.say("Deshecho");
    if (element("undo").disabled) this.field.focus();
  }

  fresh() {
    this.stop();
    this.before = [];
    this.put("", [0, 0]);
    this.notices.clear();
    this.notices.say("Texto nuevo");
    this.field.focus();
  }

  busy(controller) {
    this.running = controller;
    const focused = [element("go"), element("stop-text")].includes(document.activeElement);
    element("go").hidden = controller !== null;
    element("stop-text").hidden = controller === null;
    this.field.readOnly = controller !== null;
    if (focused) element(controller ? "stop-text" : "go").focus();
    this.show();
  }
}
