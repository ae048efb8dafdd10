// Lo que se dice a quien mira la página, y a quien la escucha.

const element = (id) => document.getElementById(id);

export class Notices {
  /** Algo ha ido mal. */
  problem(message) {
    show(element("problem"), message);
  }

  /** Algo que conviene saber; se añade a lo que ya se decía. */
  note(message) {
    const box = element("note");
    const before = box.hidden ? "" : box.textContent;
    show(box, message);
    if (before.includes(box.textContent)) box.textContent = before;
    else if (before) box.textContent = `${before} ${box.textContent}`;
  }

  /** Quita los dos avisos. */
  clear() {
    element("problem").hidden = element("note").hidden = true;
  }

  /** Lo que lee en voz alta un lector de pantalla y no hace falta ver. */
  say(message) {
    element("status").textContent = message;
  }
}

function show(box, message) {
  box.textContent = message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?…]$/.test(message) ? "" : ".");
  box.hidden = false;
}

/** Copia un texto y lo dice en el botón durante un momento. */
export async function copy(text, button, notices) {
  const label = button.querySelector("span") ?? button;
  try {
    await copyText(text);
  } catch {
    notices.problem("el navegador no deja copiar; selecciona el texto y cópialo a mano");
    return;
  }
  label.textContent = "Copiado";
  notices.say("Copiado");
  setTimeout(() => {
    label.textContent = "Copiar";
  }, 1500);
}

async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Fuera de esta máquina y sin HTTPS el navegador solo ofrece la manera antigua.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden";
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!copied) throw new Error();
}
