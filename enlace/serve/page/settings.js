// Los ajustes: los del modelo, salvo los que se cambien, que este navegador recuerda.

const NUMBERS = ["temperature", "top_p", "repetition_penalty", "max_tokens"];
const element = (id) => document.getElementById(id);
const spanish = new Intl.NumberFormat("es", { maximumFractionDigits: 2 });

export class Settings {
  constructor(model) {
    this.model = model;
    this.key = `enlace-settings-${model.id}`;
    this.changed = this.remembered();
    element("system-field").hidden = !model.chats;
    element("max_tokens").max = model.context - 1;
    element("max-tokens-help").textContent =
      `En tokens, que son trozos de palabra. Este modelo abarca ${spanish.format(model.context)}, contando lo que lee.`;
    element("tune").addEventListener("click", () => this.open());
    element("reset").addEventListener("click", () => this.reset());
    for (const name of [...NUMBERS, "system"]) {
      element(name).addEventListener("input", () => this.take(name));
    }
    element("settings").addEventListener("close", () => this.show());
  }

  /** Lo que se añade a cada petición: solo lo cambiado. */
  get values() {
    return Object.fromEntries(NUMBERS.filter((name) => name in this.changed).map((name) => [name, this.changed[name]]));
  }

  /** Las instrucciones de sistema; vacías, ninguna. */
  get system() {
    return this.changed.system?.trim() ?? "";
  }

  open() {
    this.show();
    element("settings").showModal();
  }

  reset() {
    this.changed = {};
    this.remember();
    this.show();
  }

  show() {
    for (const name of NUMBERS) {
      element(name).value = this.changed[name] ?? this.model.defaults[name];
      this.label(name);
    }
    element("system").value = this.changed.system ?? "";
  }

  take(name) {
    const field = element(name);
    if (!field.checkValidity() || field.value === "") delete this.changed[name];
    else this.changed[name] = name === "system" ? field.value : Number(field.value);
    this.label(name);
    this.remember();
  }

  label(name) {
    const output = document.querySelector(`output[for="${name}"]`);
    if (output) output.textContent = spanish.format(element(name).value);
    if (output) element(name).setAttribute("aria-valuetext", output.textContent);
  }

  remembered() {
    try {
      return JSON.parse(localStorage.getItem(this.key)) ?? {};
    } catch {
      return {};
    }
  }

  remember() {
    localStorage.setItem(this.key, JSON.stringify(this.changed));
  }
}
