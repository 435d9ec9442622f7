"""Small bodies are compressed with a dictionary, and read again by whoever has it."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdq.codec import Dictionary, Encrypt
from streamdq.codec.bodies import Bodies
from streamdq.codec.encrypt import new_key
from streamdq.codec.envelope import envelope_in
from streamdq.errors import BodyDamaged, BodyUnreadable, InvalidInput

zstandard = pytest.importorskip("zstandard")


def order(number: int) -> bytes:
    rng = random.Random(number)
    body = {
        "order_id": 10**9 + number, "customer": f"cus_{rng.getrandbits(48):012x}", "sku": rng.choice(["A-100", "B-20"]),
        "quantity": rng.randint(1, 9), "total": round(rng.random() * 500, 2), "currency": "EUR",
        "note": rng.choice(["leave it at the door", "ring us twice", ""]),
    }  # fmt: skip
    return json.dumps(body, separators=(",", ":")).encode()


SAMPLES = [order(i) for i in range(1_000)]
TRAINED, OTHER = Dictionary.train(SAMPLES), Dictionary.train(SAMPLES[:400], 1024)


def bodies(*codecs: Any, read: tuple[Any, ...] = (), decoded: int = 100_000) -> Bodies:
    return Bodies("ns", 100_000, decoded, codecs, read)


def sealed(made: Bodies, plain: bytes) -> bytes:
    seal = made.seal("t")
    assert seal is not None
    return seal("j", 1, plain)


def test_small_bodies_get_much_smaller() -> None:
    made = bodies(Dictionary(TRAINED))
    for number in range(2_000, 2_050):
        raw = sealed(made, order(number))
        assert raw.startswith(b"\xff1;dict:")
        assert len(raw) < len(order(number)) * 0.55
        assert made.decode("t", "j", raw) == order(number)
    assert not made.hides(raw)


@given(st.binary(max_size=400))
def test_any_body_comes_back(plain: bytes) -> None:
    made = bodies(Dictionary(TRAINED))
    raw = sealed(made, b"[" + plain)  # a body is JSON, which 0xff begins none of
    assert made.decode("t", "j", raw) == b"[" + plain
    assert len(raw) <= len(plain) + 1


@pytest.mark.parametrize("plain", [b"1", b'{"a":1}', b'"Qx7-"', random.Random(1).randbytes(300).replace(b"\xff", b"")])
def test_what_would_not_get_smaller_stays(plain: bytes) -> None:
    assert sealed(bodies(Dictionary(TRAINED)), plain) == plain


def test_the_first_one_compresses_and_all_decompress() -> None:
    old = sealed(bodies(Dictionary(TRAINED)), order(1))
    both = bodies(Dictionary(OTHER, TRAINED))
    new = sealed(both, order(1))
    assert envelope_in(new).layers != envelope_in(old).layers
    assert [both.decode("t", "j", raw) for raw in (old, new)] == [order(1)] * 2
    assert bodies(read=(Dictionary(OTHER, TRAINED),)).decode("t", "j", old) == order(1)


@pytest.mark.parametrize("read", [(), (Dictionary(OTHER),)], ids=["none", "another one"])
def test_without_its_dictionary_a_body_is_unreadable_and_not_damaged(read: tuple[Any, ...]) -> None:
    codec = Dictionary(TRAINED)
    raw = sealed(bodies(codec), order(1))
    with pytest.raises(
        BodyUnreadable, match=f"dictionary '{codec.tag}', which is not configured here; see STREAMDQ_BODY_D"
    ):
        bodies(read=read).decode("t", "j", raw)


def test_it_goes_before_encryption() -> None:
    made = bodies(Dictionary(TRAINED), Encrypt(new_key("k")))
    raw = sealed(made, order(3))
    assert [layer.name for layer in envelope_in(raw).layers] == ["dict", "encrypt"]
    assert made.decode("t", "j", raw) == order(3)
    assert made.hides(raw)


def test_damaged_data_is_told() -> None:
    made = bodies(Dictionary(TRAINED))
    raw = sealed(made, order(4))
    head = raw.partition(b"\n")[0] + b"\n"
    for damaged in (raw[:-1], raw + b"x", head, head + b"\x00"):
        with pytest.raises(BodyDamaged, match=r"damaged|does not tell"):
            made.decode("t", "j", damaged)


def test_a_bomb_is_not_unpacked() -> None:
    made = bodies(Dictionary(TRAINED))
    raw = sealed(bodies(Dictionary(TRAINED), decoded=10_000_000), b" " * 1_000_000)
    assert len(raw) < 1_000
    with pytest.raises(BodyUnreadable, match="1000000 bytes, more than STREAMDQ_MAX_DECODED_BYTES"):
        made.decode("t", "j", raw)


def test_threads_share_a_codec() -> None:
    made = bodies(Dictionary(TRAINED))
    plain = [order(i) for i in range(5_000, 5_400)]
    with ThreadPoolExecutor(8) as threads:
        raws = list(threads.map(lambda body: sealed(made, body), plain))
        assert list(threads.map(lambda raw: made.decode("t", "j", raw), raws)) == plain


def test_a_dictionary_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.dict"
    file.write_bytes(TRAINED)
    assert Dictionary(file).tag == Dictionary(str(file)).tag == Dictionary(TRAINED).tag
    assert repr(Dictionary(file)) == f"Dictionary({Dictionary(TRAINED).tag})"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((), "pass at least one"),
        ((b"nonsense",), "the one passed as bytes is no dictionary"),
        (("/does/not/exist",), "can't read /does/not/exist: No such file"),
        ((7,), "int is neither a file nor bytes"),
        ((TRAINED[:4] + b"x" * 400,), "one of them is damaged"),
    ],
)
def test_what_is_no_dictionary_is_told(given: tuple[Any, ...], why: str) -> None:
    with pytest.raises(InvalidInput, match=f"^Dictionary: .*{why}"):
        Dictionary(*given)


def test_samples_must_do() -> None:
    with pytest.raises(InvalidInput, match="7 samples; at least 100"):
        Dictionary.train(SAMPLES[:7])
    with pytest.raises(InvalidInput, match="size=10"):
        Dictionary.train(SAMPLES, 10)
    with pytest.raises(InvalidInput, match="no dictionary can be made"):
        Dictionary.train([b""] * 200)
    with pytest.raises(InvalidInput, match="level=0"):
        Dictionary(TRAINED, level=0)


def test_what_is_told_of_a_trial_is_what_is_stored() -> None:
    codec, trial = Dictionary(TRAINED), [*(order(i) for i in range(3_000, 3_020)), b"1"]
    raws = [sealed(bodies(codec), plain) for plain in trial]
    assert codec.tried(trial) == (sum(map(len, trial)) / len(trial), sum(map(len, raws)) / len(trial))
