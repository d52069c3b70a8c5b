"""Notes and heads: the reference implementation's own example, and every malformed one."""

import pytest

from holdfast.errors import HoldfastError, SignatureInvalid, ValidationError
from holdfast.proof.encoding import from_base64
from holdfast.proof.keys import SecretKey
from holdfast.proof.merkle import EMPTY_ROOT
from holdfast.proof.notes import (
    LogHead,
    NoteKey,
    open_head,
    origin_of,
    parse_head,
    parse_key,
    read_note,
    sign_head,
    sign_line,
    verify_note,
    write_note,
)

VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SEED = from_base64("seed", "AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
LINE = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
NOTE = f"{TEXT}\n{LINE}"
SECRET, OTHER = SecretKey(SEED), SecretKey(b"\2" * 32)
KEY = parse_key(VKEY)
ORIGIN = origin_of("8f2e")
HEAD = LogHead(ORIGIN, 7, b"\3" * 32)
HEAD_KEY = NoteKey(ORIGIN, SECRET.public_key)


def test_the_published_note_is_read():
    assert KEY.text() == VKEY
    assert KEY.public == SECRET.public_key
    assert sign_line(TEXT, "PeterNeumann", SECRET) == LINE
    assert write_note(TEXT, LINE) == NOTE
    assert read_note(NOTE).text == TEXT
    verify_note(read_note(NOTE), KEY)


def test_signatures_of_unknown_keys_are_ignored():
    note = read_note(write_note(TEXT, sign_line(TEXT, "PeterNeumann", OTHER), LINE, sign_line("x\n", "Else", SECRET)))
    assert [line.name for line in note.signatures] == ["PeterNeumann", "PeterNeumann", "Else"]
    verify_note(note, KEY)


def test_a_note_without_a_known_signer_is_refused():
    with pytest.raises(SignatureInvalid, match="has not signed"):
        verify_note(read_note(NOTE), NoteKey("PeterNeumann", OTHER.public_key))
    with pytest.raises(SignatureInvalid, match="has not signed"):
        verify_note(read_note(NOTE), NoteKey("Peter", SECRET.public_key))


def test_a_note_with_one_invalid_signature_is_refused():
    for text, lines in [(TEXT.upper(), [LINE]), (TEXT, [LINE, sign_line("else\n", "PeterNeumann", SECRET)])]:
        with pytest.raises(SignatureInvalid, match="does not fit"):
            verify_note(read_note(write_note(text, *lines)), KEY)


def test_a_text_may_have_blank_lines():
    text = "a\n\nb\n"
    note = read_note(write_note(text, sign_line(text, "PeterNeumann", SECRET)))
    assert note.text == text
    verify_note(note, KEY)


@pytest.mark.parametrize("place", range(len(VKEY)))
def test_a_malformed_note_key_is_refused(place: int):
    bent = VKEY[:place] + chr(ord(VKEY[place]) + 1) + VKEY[place + 1 :]
    for text in (bent, VKEY[:place], VKEY[place + 1 :]):
        with pytest.raises(HoldfastError):
            parse_key(text)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u2003b", "a\x7fb", "\ud800", "n" * 201])
def test_names_that_would_break_a_line_are_refused(name: str):
    with pytest.raises(HoldfastError):
        sign_line(TEXT, name, SECRET)
    with pytest.raises(HoldfastError):
        LogHead(name, 0, EMPTY_ROOT).text()


@pytest.mark.parametrize(
    "note",
    [
        "",
        TEXT,
        TEXT + "\n",
        NOTE[:-1],
        NOTE + "\n",
        NOTE.replace("\n\n", "\n"),
        NOTE.replace("— ", "- "),
        NOTE.replace("— ", "—"),
        NOTE.replace(" x08g", "  x08g"),
        NOTE.replace("M=\n", "M\n"),
        NOTE.replace("M=\n", "M= \n"),
        NOTE.replace("think", "th\tink"),
        NOTE.replace("think", "th\rink"),
        NOTE.replace("think", "th\ud800ink"),
        NOTE.replace(LINE, "— PeterNeumann x08gow==\n"),
        NOTE.replace(LINE, "— PeterNeumann\n"),
        write_note(TEXT, LINE * 65),
        write_note("x" * 200_000 + "\n", LINE),
    ],
    ids=lambda note: ascii(note)[-30:],
)
def test_invalid_notes_are_refused(note: str):
    with pytest.raises(HoldfastError):
        read_note(note)


def test_a_head_is_read_back():
    note = sign_head(HEAD, SECRET)
    assert note.startswith("holdfast/8f2e\n7\nAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=\n\n— holdfast/8f2e ")
    assert open_head(note, parse_key(HEAD_KEY.text())) == HEAD


def test_the_published_head_is_read():
    text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    head = parse_head(text)
    assert (head.origin, head.size) == ("example.com/behind-the-sofa", 20852163)
    assert head.text() == text


def test_a_head_of_another_tree_is_refused():
    text = HEAD.text()
    with pytest.raises(SignatureInvalid, match="not of holdfast/other"):
        open_head(write_note(text, sign_line(text, "holdfast/other", SECRET)), NoteKey("holdfast/other", SECRET.public_key))


def test_a_head_that_was_not_signed_is_refused():
    with pytest.raises(SignatureInvalid):
        open_head(sign_head(HEAD, OTHER), HEAD_KEY)


ROOT = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM="


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"o\n7\n{ROOT}",
        f"o\n07\n{ROOT}\n",
        f"o\n-7\n{ROOT}\n",
        f"o\n\n{ROOT}\n",
        f"o\n7 \n{ROOT}\n",
        f"o\n\u0667\n{ROOT}\n",
        f"o\n9999999999999999999\n{ROOT}\n",
        f"o\n99999999999999999999\n{ROOT}\n",
        f"\n7\n{ROOT}\n",
        f"o o\n7\n{ROOT}\n",
        f"o\n7\n{ROOT}\nmore\n",
        f"o\n7\n{ROOT[:-1]}\n",
        "o\n7\nAwMD\n",
        f"o\n7\n{ROOT}\n\n",
    ],
)
def test_invalid_heads_are_refused(text: str):
    with pytest.raises(ValidationError):
        parse_head(text)
