"""El optimizador: grupos completos, decaimiento donde toca y la misma cuenta que a mano."""

from typing import Any

import pytest
import torch
from torch import nn

from enlace.model.transformer import Transformer
from enlace.train.optim import assert_complete, build_optimizer, parameter_groups
from tests.support import make_config

CPU = torch.device("cpu")


def build_model(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(make_config({f"model.{k}": v for k, v in changes.items()}).model, "math")


@pytest.mark.parametrize("tied", [True, False])
def test_los_grupos_cubren_cada_parametro_una_vez(tied: bool) -> None:
    model = build_model(tie_embeddings=tied)
    groups = parameter_groups(model, 0.1)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(parameter) for parameter in model.parameters()}
    assert sum(p.numel() for group in groups for p in group["params"]) == model.num_parameters()


def test_solo_decaen_las_matrices() -> None:
    model = build_model()
    decays = {
        id(parameter): group["weight_decay"]
        for group in parameter_groups(model, 0.1)
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        is_norm = "norm" in name
        assert decays[id(parameter)] == (0.0 if is_norm else 0.1), name


def test_grupos_incompletos_repetidos_o_ajenos_se_detectan() -> None:
    model = build_model()
    first, *rest = model.parameters()
    with pytest.raises(AssertionError, match="1 parámetros no tienen grupo"):
        assert_complete(model, [{"params": rest}])
    with pytest.raises(AssertionError, match="más de un grupo"):
        assert_complete(model, [{"params": [first, first, *rest]}])
    with pytest.raises(AssertionError, match="no son del modelo"):
        assert_complete(model, [{"params": [first, *rest, nn.Parameter(torch.zeros(1))]}])


def test_un_paso_es_el_adamw_de_la_formula() -> None:
    train = make_config().train
    model = nn.Linear(3, 2)
    weight, bias = model.weight.detach().double(), model.bias.detach().double()
    optimizer = build_optimizer(model, train, CPU)
    for parameter in model.parameters():
        parameter.grad = torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape)
    optimizer.step()

    def reference(value: torch.Tensor, decay: float) -> torch.Tensor:
        gradient = torch.linspace(-1, 1, value.numel()).reshape(value.shape).double()
        first = (1 - train.beta1) * gradient / (1 - train.beta1)
        second = (1 - train.beta2) * gradient**2 / (1 - train.beta2)
        return value * (1 - train.lr * decay) - train.lr * first / (second.sqrt() + train.eps)

    torch.testing.assert_close(model.weight.double(), reference(weight, train.weight_decay))
    torch.testing.assert_close(model.bias.double(), reference(bias, 0.0))


def test_los_hiperparametros_llegan_al_optimizador() -> None:
    train = make_config({"train.beta1": 0.8, "train.beta2": 0.9, "train.eps": 1e-6}).train
    group = build_optimizer(nn.Linear(2, 2), train, CPU).param_groups[0]
    assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.9), 1e-6, train.lr)
    assert group["fused"] is True
