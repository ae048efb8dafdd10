from pathlib import Path

import pytest

from enlace.preflight.stamp import has_stamp, machine_id, remove_stamps, stamp_path, write_stamp

CARD, OTHER_CARD = "NVIDIA GeForce RTX 2060", "NVIDIA GeForce RTX 3060"
KEY, OTHER_KEY = "a" * 64, "b" * 64


def test_el_sello_va_y_vuelve_solo_para_su_maquina_y_su_clave(tmp_path: Path) -> None:
    path = write_stamp(tmp_path, "maquina00001", KEY, CARD)
    assert path == tmp_path / ".enlace/preflight/maquina00001-aaaaaaaaaaaaaaaa.json"
    assert has_stamp(tmp_path, "maquina00001", KEY)
    assert not has_stamp(tmp_path, "maquina00002", KEY)
    assert not has_stamp(tmp_path, "maquina00001", OTHER_KEY)
    write_stamp(tmp_path, "maquina00001", OTHER_KEY, CARD)
    remove_stamps(tmp_path, KEY)
    assert not has_stamp(tmp_path, "maquina00001", KEY)
    assert has_stamp(tmp_path, "maquina00001", OTHER_KEY)
    remove_stamps(tmp_path, KEY)


def test_un_sello_copiado_con_otro_nombre_no_vale(tmp_path: Path) -> None:
    path = write_stamp(tmp_path, "maquina00001", KEY, CARD)
    path.rename(stamp_path(tmp_path, "maquina00002", KEY))
    assert not has_stamp(tmp_path, "maquina00002", KEY)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"key": 1}', b"[" * 100_000])
def test_un_sello_danado_cuenta_como_ausente(tmp_path: Path, content: bytes) -> None:
    write_stamp(tmp_path, "maquina00001", KEY, CARD).write_bytes(content)
    assert not has_stamp(tmp_path, "maquina00001", KEY)


def test_la_maquina_cambia_con_el_equipo_y_con_la_tarjeta(tmp_path: Path) -> None:
    one, two = tmp_path / "una", tmp_path / "otra"
    one.write_text("0123\n", encoding="ascii")
    two.write_text("4567\n", encoding="ascii")
    identities = {machine_id(CARD, one), machine_id(OTHER_CARD, one), machine_id(CARD, two)}
    assert len(identities) == 3
    assert machine_id(CARD, one) == machine_id(CARD, one)
    assert all(len(identity) == 12 and int(identity, 16) >= 0 for identity in identities)


def test_sin_identificador_del_sistema_sigue_habiendo_uno_estable(tmp_path: Path) -> None:
    empty, strange = tmp_path / "vacía", tmp_path / "rara"
    empty.touch()
    strange.write_bytes(b"\xff\xfe")
    expected = machine_id(CARD, empty)
    for path in (tmp_path / "no-existe", tmp_path, strange):
        assert machine_id(CARD, path) == expected


def test_una_carpeta_en_el_sitio_de_un_sello_no_es_un_sello(tmp_path: Path) -> None:
    stamp_path(tmp_path, "maquina00001", KEY).mkdir(parents=True)
    assert not has_stamp(tmp_path, "maquina00001", KEY)
    with pytest.raises(IsADirectoryError):
        write_stamp(tmp_path, "maquina00001", KEY, CARD)
