// Quien mira el final sigue viéndolo: mientras crece lo escrito, o cuando un aviso quita sitio.

const NEAR = 60;

/** Mantiene `frame` al final de `content`, salvo que quien mira haya subido. */
export function follow(frame, content) {
  let following = true;
  frame.addEventListener(
    "scroll",
    () => {
      following = frame.scrollHeight - frame.scrollTop - frame.clientHeight < NEAR;
    },
    { passive: true },
  );
  const observer = new ResizeObserver(() => {
    if (following) frame.scrollTop = frame.scrollHeight;
  });
  observer.observe(frame);
  observer.observe(content);
  return () => {
    following = true;
    frame.scrollTop = frame.scrollHeight;
  };
}
