"""Un paso trazado en CPU visto como si fuera en CUDA.

torch no sabe trazar un paso para una tarjeta que no está: sin los binarios de CUDA fallan `linear`
y la atención, y con ellos falla la pasada hacia atrás. Se traza por tanto en CPU, y donde las dos
difieren `StepLens` pone lo de CUDA:

- RMSNorm es un solo núcleo, que guarda la entrada y 1/rms (`_fused_rms_norm`); en CPU guarda lo
  mismo, pero son varias operaciones;
- la atención es la del perfil, con su logsumexp, y no la de CPU; su pasada hacia atrás pide por
  dentro un acumulador fp32 del tamaño de las consultas y, en flash con GQA, los gradientes de
  claves y valores sin agrupar (`mha_bwd` de FlashAttention-2);
- la pérdida multiplica en 16 bits con salida fp32 (`torch.mm(..., out_dtype=torch.float32)`);
- los ids y los objetivos se copian a la tarjeta.

Letras de forma: B secuencias, H cabezas de consulta, K de clave y valor, T tokens, D head_dim.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn import functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from enlace.preflight.estimate.costs import Cost, attention_flops, tensor_bytes
from enlace.preflight.estimate.recorder import BACKWARD, EVALUATION, FORWARD, OPTIMIZER, Recorder

_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_BACKWARD_OVER_FORWARD = 2.5
_FP32 = 4


class StepLens(TorchFunctionMode):
    """Dice al `Recorder` en qué fase está el paso y, con `kernel`, cambia las operaciones.

    Args:
        recorder: a quien se lo dice.
        kernel: núcleo de atención de CUDA; None si se traza un entrenamiento en CPU.
    """

    def __init__(self, recorder: Recorder, kernel: str | None) -> None:
        super().__init__()
        self._recorder = recorder
        self._kernel = kernel

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Cambia de fase y, en CUDA, de operación."""
        kwargs = kwargs or {}
        if func is torch.Tensor.backward:
            return self._backward(args[0])
        if func is F.embedding and self._recorder.phase != EVALUATION:
            self._recorder.phase = FORWARD
        if self._kernel is not None:
            if func == _IS_CUDA:
                return True
            if func is F.rms_norm:
                return self._rms_norm(args[0], kwargs.get("weight", args[2:3] and args[2]))
            if func is F.scaled_dot_product_attention:
                return self._attention(args[0], args[1], args[2], kwargs.get("attn_mask"))
            if func is torch.mm and "out_dtype" in kwargs:
                return self._mixed_mm(*args)
            if func is torch.Tensor.to and args[0].dtype == torch.int64:
                return args[0].clone()
        self._recorder.from_python = True
        try:
            return func(*args, **kwargs)
        finally:
            self._recorder.from_python = False

    def _backward(self, loss: Tensor) -> None:
        self._recorder.phase = BACKWARD
        self._recorder.watch_graph(loss)
        # Mientras atiende una función un modo no mira, y hacia atrás hay que seguir mirando (con
        # checkpointing se repite el modelo). `torch.autograd.backward` también es una función, así
        # que se llama a lo que ella llama.
        with self:
            _engine_run_backward(
                (loss,), (torch.ones_like(loss),), False, False, (),
                allow_unreachable=True, accumulate_grad=True,
            )  # fmt: skip
        self._recorder.phase = OPTIMIZER

    def _rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        y: Tensor = _FusedRMSNorm.apply(x, weight, self._recorder)
        return y

    def _attention(
        self, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor, mask_B1TT: Tensor | None
    ) -> Tensor:
        y: Tensor = _FusedAttention.apply(
            q_BHTD, k_BKTD, v_BKTD, mask_B1TT, self._kernel, self._recorder
        )
        return y

    def _mixed_mm(self, left: Tensor, right: Tensor) -> Tensor:
        out = left.new_empty((left.shape[0], right.shape[1]), dtype=torch.float32)
        moved = sum(map(tensor_bytes, (left, right, out)))
        self._recorder.work(Cost("gemm", 2 * left.numel() * right.shape[1], moved))
        return out


class _FusedRMSNorm(torch.autograd.Function):
    """`aten::_fused_rms_norm`: guarda la entrada, el peso y un 1/rms por fila."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, recorder: Recorder) -> Tensor:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        rstd = x.new_empty((*x.shape[:-1], 1))
        ctx.save_for_backward(x, weight, rstd)
        ctx.recorder = recorder
        recorder.work(Cost("pointwise", 0, tensor_bytes(x) + tensor_bytes(y)))
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, _ = ctx.saved_tensors
        dx = torch.empty_like(x, memory_format=torch.contiguous_format)
        moved = tensor_bytes(x) + tensor_bytes(dy) + tensor_bytes(dx)
        ctx.recorder.work(Cost("pointwise", 0, moved))
        # El gradiente del peso es otro núcleo, que vuelve a leer las dos entradas.
        ctx.recorder.work(Cost("pointwise", 0, tensor_bytes(x) + tensor_bytes(dy)))
        return dx, torch.empty_like(weight), None


class _FusedAttention(torch.autograd.Function):
    """Los núcleos mem_efficient, flash y cuDNN: guardan entradas, salida y logsumexp fp32.

    La máscara de documentos, si la hay, también se guarda, pero es la misma para todas las capas;
    cada cabeza la lee entera.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_BHTD: Tensor,
        k_BKTD: Tensor,
        v_BKTD: Tensor,
        mask_B1TT: Tensor | None,
        kernel: str,
        recorder: Recorder,
    ) -> Tensor:
        batch, heads, length, width = q_BHTD.shape
        # La salida sale ordenada como (B, T, H, D): juntar las cabezas no la copia.
        out_BHTD = q_BHTD.new_empty((batch, length, heads, width)).transpose(1, 2)
        lse_BHT = q_BHTD.new_empty((batch, heads, length), dtype=torch.float32)
        ctx.save_for_backward(q_BHTD, k_BKTD, v_BKTD, out_BHTD, lse_BHT, mask_B1TT)
        ctx.kernel, ctx.recorder = kernel, recorder
        moved = sum(map(tensor_bytes, (q_BHTD, k_BKTD, v_BKTD, out_BHTD, lse_BHT)))
        moved += _mask_bytes(mask_B1TT, heads)
        flops = attention_flops(q_BHTD, mask_B1TT is not None)
        recorder.work(Cost("attention", flops, moved))
        return out_BHTD

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        q_BHTD, k_BKTD, v_BKTD, out_BHTD, lse_BHT, mask_B1TT = ctx.saved_tensors
        gradients = [_like(tensor) for tensor in (q_BHTD, k_BKTD, v_BKTD)]
        ctx.recorder.transient(q_BHTD.numel() * _FP32 + tensor_bytes(lse_BHT))
        if k_BKTD.shape[1] != q_BHTD.shape[1]:
            ctx.recorder.transient(2 * tensor_bytes(q_BHTD))
        tensors = (q_BHTD, k_BKTD, v_BKTD, out_BHTD, dout, *gradients)
        moved = sum(map(tensor_bytes, tensors)) + _mask_bytes(mask_B1TT, q_BHTD.shape[1])
        flops = int(_BACKWARD_OVER_FORWARD * attention_flops(q_BHTD, mask_B1TT is not None))
        ctx.recorder.work(Cost("attention", flops, moved))
        return gradients[0], gradients[1], gradients[2], None, None, None


def _mask_bytes(mask_B1TT: Tensor | None, heads: int) -> int:
    return 0 if mask_B1TT is None else heads * tensor_bytes(mask_B1TT)


def _like(x_BHTD: Tensor) -> Tensor:
    """Un gradiente ordenado como (B, T, H, D), igual que los escriben los núcleos."""
    batch, heads, length, width = x_BHTD.shape
    return x_BHTD.new_empty((batch, length, heads, width)).transpose(1, 2)
