"""El optimizador: grupos completos, decaimiento donde toca y la misma cuenta que a mano."""

from typing import Any

import pytest
import torch
from torch import nn

from enlace.backends import open_device
from enlace.config.schema import TrainConfig
from enlace.model.transformer import Transformer
from enlace.train.optim import assert_complete, build_optimizer, parameter_groups
from tests.support import make_config

BACKEND = open_device(make_config().hardware)


def build_model(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(make_config({f"model.{k}": v for k, v in changes.items()}).model, "math")


def recipe(**changes: Any) -> TrainConfig:
    return make_config({f"train.{k}": v for k, v in changes.items()}).train


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [True, False])
def test_los_grupos_cubren_cada_parametro_una_vez(tied: bool, optimizer: str) -> None:
    model = build_model(tie_embeddings=tied)
    groups = parameter_groups(model, recipe(optimizer=optimizer))
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(parameter) for parameter in model.parameters()}
    assert sum(p.numel() for group in groups for p in group["params"]) == model.num_parameters()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_solo_decaen_las_matrices(optimizer: str) -> None:
    model = build_model()
    decays = {
        id(parameter): group["weight_decay"]
        for group in parameter_groups(model, recipe(optimizer=optimizer, weight_decay=0.1))
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        is_norm = "norm" in name
        assert decays[id(parameter)] == (0.0 if is_norm else 0.1), name


@pytest.mark.parametrize("tied", [True, False])
def test_muon_solo_toma_las_matrices_de_los_bloques(tied: bool) -> None:
    model = build_model(tie_embeddings=tied)
    groups = parameter_groups(model, recipe(optimizer="muon", muon_adamw_lr_ratio=0.5))
    rules = {id(p): (g["rule"], g["lr_scale"]) for g in groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        is_inner = name.startswith("blocks.") and "norm" not in name
        assert rules[id(parameter)] == (("muon", 1.0) if is_inner else ("adamw", 0.5)), name
    assert [g["rule"] for g in groups].count("muon") == 1


def test_con_adamw_la_fraccion_de_muon_no_cuenta() -> None:
    groups = parameter_groups(build_model(), recipe(muon_adamw_lr_ratio=0.5))
    assert [(g["rule"], g["lr_scale"]) for g in groups] == [("adamw", 1.0)] * 2


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
    optimizer = build_optimizer(model, train, BACKEND)
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
    group = build_optimizer(nn.Linear(2, 2), train, BACKEND).param_groups[0]
    assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.9), 1e-6, train.lr)
    assert group["fused"] is True
