"""The settings name codecs and keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamdq.codec import Encrypt
from streamdq.codec.configured import bodies_of
from streamdq.codec.encrypt import new_key
from streamdq.config import Settings
from streamdq.errors import BodyDamaged, BodyUnreadable, InvalidInput

A, B = new_key("a"), new_key("b")


def settings(**values: str) -> Settings:
    return Settings(url="memory://unused").model_copy(update=values)


def test_without_settings_bodies_stay_json() -> None:
    made = bodies_of("ns", settings())
    assert made.seal("t") is None
    assert made.most_json_bytes == settings().max_body_bytes
    assert not made.encrypts


def test_keys_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{B}\n")
    made = bodies_of("ns", settings(codec="encrypt", body_keys=A, body_keys_file=str(tmp_path / "keys")))
    seal = made.seal("t")
    assert seal is not None
    raw = seal("j", 1, b"1")
    assert raw.startswith(b"\xff1;encrypt:a\n")
    other = Encrypt(B)
    sealed_by_b = bodies_of("ns", settings(), [other]).seal("t")
    assert sealed_by_b is not None
    assert made.decode("t", "j", sealed_by_b("j", 1, b"2")) == b"2"


def test_the_code_decides_what_is_written_and_the_keys_of_the_environment_are_read_as_well() -> None:
    written = bodies_of("ns", settings(codec="encrypt", body_keys=A)).seal("t")
    assert written is not None
    plain = bodies_of("ns", settings(codec="encrypt", body_keys=A), [])
    assert plain.seal("t") is None
    assert plain.decode("t", "j", written("j", 1, b"3")) == b"3"


def test_keys_in_the_code_do_not_hide_those_of_the_environment() -> None:
    """While a deployment goes from one to the other, both are there."""
    sealed = bodies_of("ns", settings(codec="encrypt", body_keys=A)).seal("t")
    assert sealed is not None
    raw = sealed("j", 1, b"3")
    both = bodies_of("ns", settings(body_keys=A), [Encrypt(B)])
    assert both.decode("t", "j", raw) == b"3"
    seal = both.seal("t")
    assert seal is not None
    assert both.decode("t", "j", seal("j", 1, b"4")) == b"4"
    same_id = bodies_of("ns", settings(body_keys=A), [Encrypt(new_key("a"))])
    assert same_id.decode("t", "j", raw) == b"3"
    with pytest.raises(BodyDamaged):
        both.decode("t", "j", raw[:-1] + bytes([raw[-1] ^ 1]))
    third = bodies_of("ns", settings(body_keys=new_key("c")), [Encrypt(B)])
    with pytest.raises(BodyUnreadable, match="the key 'a', which is not configured"):
        third.decode("t", "j", raw)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"codec": "gzip"}, "'gzip' is none of trace, zstd, encrypt and offload"),
        ({"codec": "encrypt"}, "encrypt needs a key"),
        ({"codec": "offload"}, "offload needs a URL in STREAMDQ_OFFLOAD"),
        ({"offload": "nonsense://x"}, "Offload: Protocol not known"),
        ({"body_keys": "nonsense"}, "key number 1"),
        ({"body_keys_file": "/does/not/exist"}, "can't read /does/not/exist: No such file"),
    ],
)
def test_what_can_t_be_used_is_reported(values: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        bodies_of("ns", settings(**values))


def test_the_settings_don_t_show_the_keys() -> None:
    assert A.partition("=")[2] not in repr(settings(body_keys=A))
