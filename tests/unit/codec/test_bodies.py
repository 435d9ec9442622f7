"""Bodies are stored and read again; what can't be read says why, and nothing that was changed is taken for a body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdq.codec import Codec, Context, Encrypt, Zstd
from streamdq.codec.bodies import Bodies
from streamdq.codec.encrypt import new_key
from streamdq.codec.envelope import Envelope, Layer, as_text, envelope_in, from_text, version_in
from streamdq.errors import BodyDamaged, BodyUnreadable, InvalidInput
from streamdq.job.job import MAX_VERSION

OLD, NEW = new_key("2026-05"), new_key("2026-11")
LARGE = json.dumps({"text": "a secret " * 2000}).encode()


def bodies(*codecs: Codec, read: tuple[Codec, ...] = (), most: int = 100_000, decoded: int = 1_000_000) -> Bodies:
    return Bodies("ns", most, decoded, codecs, read)


def sealed(made: Bodies, plain: bytes = LARGE, version: int = 1, id: str = "j", topic: str = "t") -> bytes:
    seal = made.seal(topic)
    assert seal is not None
    return seal(id, version, plain)


# -- the first line

layers = st.tuples(
    st.builds(str.__add__, st.sampled_from("az"), st.text("az09_-", max_size=31)),
    st.text("AZaz09._-", max_size=64),
).map(lambda parts: Layer(*parts))


@given(st.integers(1, MAX_VERSION), st.lists(layers, max_size=8), st.binary(max_size=50))
def test_an_envelope_is_read_as_it_was_written(version: int, applied: list[Layer], data: bytes) -> None:
    made = Envelope(version, tuple(applied), data)
    if version > 1 or applied:
        assert envelope_in(made.sealed()) == made
        assert from_text(as_text(made.sealed())) == made.sealed()
    else:
        assert made.sealed() == data


def test_plain_json_stays_as_it_is() -> None:
    assert Envelope(1, (), b'{"a":1}').sealed() == b'{"a":1}'
    assert envelope_in(b'{"a":1}') == Envelope(1, (), b'{"a":1}')
    assert as_text('{"ü":1}'.encode()) == '{"ü":1}'
    assert from_text('{"ü":1}') == '{"ü":1}'.encode()
    assert bodies().seal("t") is None


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"\xff1", b"\xff0;zstd\nx", b"\xffx\n", b"\xff1;Zstd\n", b"\xff1;a b\n", b"\xff1" + b";a" * 9 + b"\n"],
)
def test_a_damaged_first_line_is_reported(raw: bytes) -> None:
    with pytest.raises(BodyDamaged, match="first line"):
        bodies().decode("t", "j", raw)
    assert version_in(raw) == 1
    assert bodies().hides(raw)


def test_a_version_needs_no_codec() -> None:
    raw = Envelope(2, (), b'{"a":1}').sealed()
    assert raw == b'\xff2\n{"a":1}'
    assert bodies().decode("t", "j", raw) == b'{"a":1}'
    assert (bodies().version_in(raw), bodies().hides(raw)) == (2, False)


# -- encryption


@given(st.binary(min_size=1, max_size=300), st.integers(1, 5))
def test_an_encrypted_body_comes_back(plain: bytes, version: int) -> None:
    made = bodies(Encrypt(NEW))
    raw = sealed(made, plain, version)
    assert raw.startswith(b"\xff%d;encrypt:2026-11\n" % version)
    assert made.decode("t", "j", raw) == plain
    assert len(plain) < 8 or plain not in raw
    assert made.hides(raw)


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = sealed(bodies(Encrypt(OLD)))
    both = bodies(Encrypt(NEW, OLD))
    assert both.decode("t", "j", before) == LARGE
    with pytest.raises(BodyUnreadable, match="the key '2026-11', which is not configured here") as error:
        bodies(Encrypt(OLD)).decode("t", "j", sealed(both))
    assert not isinstance(error.value, BodyDamaged)
    with pytest.raises(BodyUnreadable, match="STREAMDQ_BODY_KEYS"):
        bodies().decode("t", "j", sealed(both))


def test_a_wrong_key_of_the_same_id_is_not_taken_for_damage() -> None:
    with pytest.raises(BodyUnreadable, match="another key of the id '2026-11'") as error:
        bodies(Encrypt(new_key("2026-11"))).decode("t", "j", sealed(bodies(Encrypt(NEW))))
    assert not isinstance(error.value, BodyDamaged)


@pytest.mark.parametrize("left", [0, 3, 4, 15, 31])
def test_one_that_was_truncated_is_not_taken_for_another_key(left: int) -> None:
    raw = sealed(bodies(Encrypt(NEW)))
    cut = raw[: raw.index(b"\n") + 1 + left]
    with pytest.raises(BodyDamaged, match="truncated"):
        bodies(Encrypt(NEW)).decode("t", "j", cut)


@pytest.mark.parametrize(("topic", "id"), [("t", "other"), ("other", "j"), ("tj", "")])
def test_a_body_is_that_of_its_job_alone(topic: str, id: str) -> None:
    made = bodies(Encrypt(NEW))
    with pytest.raises(BodyDamaged, match="is that of another job"):
        made.decode(topic, id, sealed(made))


def test_no_bit_of_it_can_be_changed() -> None:
    made = bodies(Encrypt(NEW))
    raw = sealed(made, b'{"a":1}', version=2)
    for i in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[i] ^= 1 << bit
            if changed[:1] == b"\xff":  # else it is no encoded body any more
                with pytest.raises(BodyUnreadable):
                    made.decode("t", "j", bytes(changed))
    for cut in range(1, len(raw)):
        with pytest.raises(BodyUnreadable):
            made.decode("t", "j", raw[:cut])


def test_no_message_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    secret = NEW.partition("=")[2]
    shown = [repr(Encrypt(NEW, OLD)), str(Encrypt(NEW).__dict__)]
    for keys in ([secret], [NEW, NEW], [NEW + "A"], [NEW[:-8]], ["a b=" + secret], ["x=ü"], []):
        with pytest.raises(InvalidInput) as error:
            Encrypt(*keys)
        shown.append(str(error.value))
    assert not any(secret[:8] in text for text in [*shown, caplog.text])


def test_a_key_needs_an_id_that_can_be_stored() -> None:
    for id in ("", "a b", "a=b", "ü", "x" * 65):
        with pytest.raises(InvalidInput, match="its id must be"):
            new_key(id)


# -- codecs together


class Reversed:
    """Of an application."""

    name = "reversed"
    tag = "v1"

    def encode(self, data: bytes, context: Context) -> bytes | None:
        return None if context.id == "left.out" else data[::-1]

    def decode(self, data: bytes, tag: str, context: Context) -> bytes:
        assert (tag, context.topic) == ("v1", "t")
        if data == b"":
            raise OSError("a secret in the message")
        return data[::-1]


def test_an_application_writes_its_own() -> None:
    made = bodies(Reversed(), Encrypt(NEW))
    raw = sealed(made)
    assert raw.startswith(b"\xff1;reversed:v1;encrypt:2026-11\n")
    assert made.decode("t", "j", raw) == LARGE
    assert sealed(made, id="left.out").startswith(b"\xff1;encrypt:2026-11\n")
    with pytest.raises(BodyUnreadable, match="codec 'reversed' is not configured here"):
        bodies(Encrypt(NEW)).decode("t", "j", raw)


def test_what_a_codec_of_an_application_raises_costs_no_job() -> None:
    with pytest.raises(BodyUnreadable, match=r"codec 'reversed' failed: OSError$") as error:
        bodies(Reversed()).decode("t", "j", b"\xff1;reversed:v1\n")
    assert not isinstance(error.value, BodyDamaged)


@pytest.mark.parametrize(("name", "tag"), [("Zstd", ""), ("a;b", ""), ("", ""), ("a", "x y"), ("a", "x\n")])
def test_a_name_that_can_t_be_stored_is_refused(name: str, tag: str) -> None:
    class Misnamed(Reversed):
        pass

    Misnamed.name, Misnamed.tag = name, tag
    with pytest.raises(InvalidInput, match="codec:"):
        bodies(Misnamed())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("zstd encrypt", "an object of type str is not a list of codecs"),
        (Encrypt(NEW), "an object of type Encrypt is not a list of codecs"),
        ([NEW], "an object of type str is not a codec"),
        ([Encrypt], "the class Encrypt is not a codec"),
    ],
)
def test_what_is_not_a_codec_is_refused_and_not_quoted(given: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^codec: {said}; .*\[Zstd\(\), Encrypt\(key\)\].*STREAMDQ_CODEC") as error:
        Bodies("ns", 1000, 1000, given)
    assert NEW not in str(error.value)


def test_the_same_codec_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        bodies(Encrypt(NEW), Encrypt(OLD))


def test_what_is_stored_has_a_limit() -> None:
    with pytest.raises(InvalidInput, match="bytes to store, more than the 1000 allowed"):
        sealed(bodies(Encrypt(NEW), most=1000))
    assert bodies(most=1000).most_json_bytes == 1000
    assert bodies(Encrypt(NEW), most=1000).most_json_bytes == 1_000_000


# -- compression


@pytest.fixture
def zstd() -> Zstd:
    pytest.importorskip("zstandard")
    return Zstd()


def test_a_large_body_gets_smaller(zstd: Zstd) -> None:
    made = bodies(zstd, Encrypt(NEW))
    raw = sealed(made)
    assert raw.startswith(b"\xff1;zstd;encrypt:2026-11\n")
    assert len(raw) < len(LARGE) / 20
    assert made.decode("t", "j", raw) == LARGE
    assert bodies(zstd).hides(sealed(bodies(zstd))) is False


@pytest.mark.parametrize("plain", [b'{"a":1}', b"x" * 256, bytes(range(256)) * 2], ids=["short", "limit", "dense"])
def test_what_would_not_get_smaller_stays(zstd: Zstd, plain: bytes) -> None:
    raw = sealed(bodies(zstd), plain)
    assert raw == plain or len(raw) < len(plain)


def test_it_is_read_without_being_configured(zstd: Zstd) -> None:
    assert bodies().decode("t", "j", sealed(bodies(zstd))) == LARGE


def test_a_bomb_is_not_unpacked(zstd: Zstd) -> None:
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(b" " * 50_000_000)
    assert len(bomb) < 10_000
    with pytest.raises(BodyUnreadable, match="50000000 bytes, more than STREAMDQ_MAX_DECODED_BYTES"):
        bodies(zstd).decode("t", "j", b"\xff1;zstd\n" + bomb)
    writer = zstandard.ZstdCompressor().compressobj()
    without_size = writer.compress(b" " * 50_000_000) + writer.flush()
    with pytest.raises(BodyDamaged, match="does not tell its size"):
        bodies(zstd).decode("t", "j", b"\xff1;zstd\n" + without_size)
    lying = bytearray(zstandard.ZstdCompressor().compress(b" " * 5_000_000))
    assert lying[4] >> 6 == 2  # four bytes of size
    lying[6:10] = (100).to_bytes(4, "little")
    with pytest.raises(BodyDamaged):
        bodies(zstd).decode("t", "j", b"\xff1;zstd\n" + bytes(lying))


def test_damaged_compressed_data_is_reported(zstd: Zstd) -> None:
    raw = sealed(bodies(zstd))
    for damaged in (raw[:-1], raw + b"x", raw[:20], b"\xff1;zstd\n", b"\xff1;zstd\nxxxxxxxxxxxxx"):
        with pytest.raises(BodyDamaged, match=r"damaged|does not tell"):
            bodies(zstd).decode("t", "j", damaged)


@pytest.mark.parametrize("level", [0, 23, 1.5, True])
def test_a_level_must_be_one(zstd: Zstd, level: Any) -> None:  # noqa: ARG001
    with pytest.raises(InvalidInput, match="level="):
        Zstd(level)
