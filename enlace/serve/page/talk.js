// Hablar con el servidor: qué modelo hay y su texto según sale.

/** Un error que el servidor explica en español. */
export class ServerError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Qué modelo se sirve y con qué valores se exportó. */
export async function readModel(token) {
  const response = await reach("v1/models", { headers: headers(token) });
  return (await response.json()).data[0];
}

/**
 * La respuesta según sale: { text, forgotten, finish, usage }, cada vez lo nuevo.
 * Dejar de leerla, o abortar `signal`, la para también en el servidor.
 */
export async function* answer(path, body, token, signal) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await reach(path, {
    method: "POST",
    headers: { ...headers(token), "Content-Type": "application/json" },
    body: JSON.stringify(asked),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await read(reader, signal);
    if (done) throw lost();
    const events = (pending + value).split("\n\n");
    pending = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield unpack(JSON.parse(data));
    }
  }
}

function unpack(event) {
  if (event.error) throw new ServerError(event.error.message, 500, event.error.code);
  const choice = event.choices[0];
  return {
    text: choice?.text ?? choice?.delta?.content ?? "",
    finish: choice?.finish_reason ?? null,
    forgotten: event.forgotten ?? 0,
    usage: event.usage ?? null,
  };
}

async function reach(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw lost();
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  const message = said?.error?.message ?? `El servidor contesta con un error (${response.status}).`;
  throw new ServerError(message, response.status, said?.error?.code);
}

async function read(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal.aborted) throw error;
    throw lost();
  }
}

function lost() {
  return new ServerError("se ha perdido el servidor; mira si sigue en marcha y prueba otra vez", 0, "lost");
}

function headers(token) {
  return token ? { Authorization: `Bearer ${token}` } : {};
}
