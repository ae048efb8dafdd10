"""Las filas de la tabla del preflight: cada cifra medida con su nombre, como la lee una persona."""

from math import inf, log

from enlace.config.schema import Config
from enlace.figures import (
    NOT_MEASURED,
    at_least,
    duration,
    energy,
    integer,
    magnitude,
    number,
    percent,
    scientific,
    short,
    size,
)
from enlace.preflight.estimate.record import Comparison
from enlace.preflight.health import Health
from enlace.preflight.measurement import Measurement, Outcome
from enlace.preflight.verdict import memory_budget
from enlace.preflight.wording import CHECKPOINTING, tokens_per_parameter

_WORTH_A_PERCENT = 64 << 20
"""Por debajo de esta diferencia de memoria un porcentaje engaña: es ruido de un modelo pequeño."""
_MANY = 1e7

Rows = list[tuple[str, str]]


def outcome_rows(config: Config, outcome: Outcome, compared: Comparison | None = None) -> Rows:
    """Las cifras de una medida o, si no llegó al final, lo que se sepa de fp16."""
    if isinstance(outcome, Measurement):
        return measurement_rows(config, outcome) + comparison_rows(compared)
    return [] if outcome.health is None else health_rows(outcome.health)


def measurement_rows(config: Config, outcome: Measurement) -> Rows:
    """Las cifras que lee una persona, en el orden en que las pregunta."""
    time, disk = outcome.time, outcome.disk
    rows: Rows = [
        *_memory_rows(config, outcome),
        *_time_rows(config, outcome),
        *_card_rows(outcome),
        ("Micro-batch × acumulación", f"{outcome.micro_batch} × {outcome.accumulation}"),
        ("Checkpointing de activaciones", CHECKPOINTING[config.hardware.activation_checkpointing]),
        ("Parámetros", magnitude(outcome.parameters, decimals=2)),
        ("FLOP por token", magnitude(outcome.flops_per_token)),
        ("Cálculo útil", magnitude(_useful_flops(outcome), "FLOP/s")),
        ("Tokens por parámetro", tokens_per_parameter(outcome.tokens_per_parameter)),
        (
            "Pérdida del primer paso",
            f"{number(outcome.first_loss, 3)} (al azar: {number(log(config.model.vocab_size), 3)})",
        ),
        ("Tasa de aprendizaje del ensayo", f"{short(config.train.lr)} (fija)"),
        ("Validación", duration(time.evaluation)),
        ("Guardar y cargar un checkpoint", f"{duration(time.save)} y {duration(time.load)}"),
        ("Un checkpoint", size(disk.checkpoint_bytes)),
        ("Disco: necesario y libre", f"{size(disk.needed_bytes)} y {size(disk.free_bytes)}"),
        ("Precisión y atención", f"{outcome.dtype}, {outcome.sdpa_backend}"),
    ]
    if outcome.health is not None:
        rows += health_rows(outcome.health)
    return rows


def comparison_rows(compared: Comparison | None) -> Rows:
    """Lo que se había estimado sin medir, y cuánto se apartó de ello lo medido."""
    if compared is None:
        return []
    error = compared.error
    rows: Rows = []
    if error.peak_memory is not None:
        guess = compared.peak_bytes
        found = memory_deviation(guess, error.peak_memory)
        rows.append(("Memoria estimada", f"{size(guess)}; {found}"))
    if error.tokens_per_second is not None and compared.tokens_per_second is not None:
        figure = f"{integer(round(compared.tokens_per_second))} tokens/s"
        rows.append(
            ("Velocidad estimada", f"{figure}; se midió {deviation(error.tokens_per_second)}")
        )
    return rows


def deviation(fraction: float) -> str:
    """`0.12` → «un 12,0 % más»; `-0.5` → «un 50,0 % menos»."""
    return f"un {percent(abs(fraction))} {'menos' if fraction < 0 else 'más'}"


def memory_deviation(estimated: int, fraction: float) -> str:
    """«se midió un 12,0 % más»; en bytes si son pocos, «se midieron 21,1 MiB más»."""
    extra = round(estimated * fraction)
    if abs(extra) >= _WORTH_A_PERCENT:
        return f"se midió {deviation(fraction)}"
    if not extra:
        return "se midió lo mismo"
    return f"se midieron {size(abs(extra))} {'menos' if extra < 0 else 'más'}"


def _useful_flops(outcome: Measurement) -> float:
    return outcome.tokens_per_second * outcome.flops_per_token


def _memory_rows(config: Config, outcome: Measurement) -> Rows:
    memory = outcome.memory
    budget = memory_budget(config, memory)
    if memory.peak_allocated_bytes is None:
        return [("RAM: necesaria y disponible", f"{size(memory.needed_bytes)} y {size(budget)}")]
    return [
        ("VRAM: necesaria y disponible", f"{size(memory.needed_bytes)} y {size(budget)}"),
        (
            "VRAM: pico reservado y con los pasos en marcha",
            f"{size(memory.peak_bytes)} y {size(memory.steady_bytes)}",
        ),
        (
            "VRAM: pico en uso y fragmentación",
            f"{size(memory.peak_allocated_bytes)} y {percent(memory.fragmentation)}",
        ),
        ("VRAM fuera de torch", size(memory.non_torch_bytes)),
        ("Reintentos del asignador", integer(memory.allocation_retries)),
    ]


def _time_rows(config: Config, outcome: Measurement) -> Rows:
    time = outcome.time
    hours = duration(time.total_median)
    if duration(time.total_p90) != hours:
        hours = f"{hours} (hasta {duration(time.total_p90)} con los pasos lentos)"
    first = "Primer paso, con la compilación" if config.hardware.compile else "Primer paso"
    return [
        ("Duración del entrenamiento", hours),
        (
            "Tokens por segundo: mediana y p90",
            f"{integer(round(outcome.tokens_per_second))} y "
            f"{integer(round(outcome.slow_tokens_per_second))}",
        ),
        ("Paso: mediana y p90", f"{duration(time.step_median)} y {duration(time.step_p90)}"),
        (first, duration(time.warmup)),
        ("Leer los datos de un paso", f"{duration(time.loading)} ({time.loading_from})"),
        ("Pasos medidos", integer(len(time.steps))),
    ]


def _card_rows(outcome: Measurement) -> Rows:
    rows: Rows = []
    if outcome.energy is not None:
        use = outcome.energy
        cost = "" if use.cost is None else f" ({at_least(use.cost, 2)} según kwh_price)"
        rows += [
            ("Potencia media", f"{number(use.watts, 0)} W ({use.source})"),
            ("Energía del entrenamiento", f"{energy(use.total_kwh)}{cost}"),
        ]
    if outcome.card is not None:
        card = outcome.card
        clock = f"{integer(card.sm_clock_mhz)} de {integer(card.max_sm_clock_mhz)} MHz"
        brakes = (
            NOT_MEASURED if card.throttling is None else ", ".join(card.throttling) or "ninguno"
        )
        rows += [
            ("Reloj y temperatura", f"{clock}, {integer(card.temperature_c)} °C"),
            ("Frenos del reloj", brakes),
        ]
    return rows


def health_rows(health: Health) -> Rows:
    """La salud de fp16: ventana de escalas, activaciones, comparación con fp32 y saltos."""
    window, peak, scaling = health.window, health.tightest, health.scaling
    if window.top is None or window.floor is None:
        shown = "ninguna escala sirve"
    else:
        more = " o más" if window.ceiling is None else ""
        shown = f"2^{window.floor} a 2^{window.top}{more} ({window.bits} bits)"
    bits = -inf if peak.bits is None else peak.bits
    headroom = "desborda" if peak.bits is None else f"a {number(bits, 1)} bits de 65504"
    seen = (
        f"{integer(scaling.skips)} de {integer(scaling.steps)}" if scaling.steps else NOT_MEASURED
    )
    if scaling.bound is not None:
        seen = f"{seen} (al 95\u00a0%, menos del {percent(scaling.bound)})"
    rows: Rows = [
        ("fp16: escalas que sirven", shown),
        ("fp16: mayor activación", f"{peak.where}, {headroom}"),
    ]
    if health.gap is not None:
        rows.append(
            (
                "fp16 frente a fp32",
                f"la pérdida difiere en {at_least(100 * health.gap.loss_difference, 3)}\u00a0%, "
                f"coseno {number(health.gap.gradient_cosine, 5)}",
            )
        )
    expected = f"{at_least(100 * scaling.skip_rate, 2)}\u00a0%" if scaling.steps else NOT_MEASURED
    return [
        *rows,
        ("fp16: saltos de calibración", integer(scaling.calibration_skips)),
        ("fp16: pasos saltados", seen),
        ("fp16: saltos previstos", expected),
        ("fp16: escala final", _scale(scaling.scales[-1])),
    ]


def _scale(value: float) -> str:
    """Una escala es una potencia de 2: a veces menor que 1, y sin techo si no encuentra sitio."""
    if value >= _MANY:
        return scientific(value)
    return number(value, 0) if value >= 1 else short(value)
