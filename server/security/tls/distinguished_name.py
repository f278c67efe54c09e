"""The subject of a certificate in Java's form, in which ACLs and super.users name its owner.

Source: X500Principal.getName(), which is RFC 2253 with Java's own choices (AVA.toRFC2253String); the tests compare with
texts recorded from Java 17.
"""

from __future__ import annotations

from collections.abc import Iterator

#: The attributes with a keyword; Java writes all others as OID=#hex.
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString
STRING_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
ESCAPED = frozenset(',=+<>#;"\\')
BLANKS = " \r"

SEQUENCE, SET, VERSION = 0x30, 0x31, 0xA0


def subject_of(certificate: bytes) -> bytes:
    """The DER of the subject of a certificate (DER). Errors: ValueError if it is not one."""
    _, outer, _ = _element(certificate, 0)
    _, inner, _ = _element(certificate, outer)
    position = inner
    if certificate[position] == VERSION:
        position = _element(certificate, position)[2]
    for _ in ("serialNumber", "signature", "issuer", "validity"):
        position = _element(certificate, position)[2]
    return certificate[position : _element(certificate, position)[2]]


def name_text(name: bytes) -> str:
    """A name (DER) in the form of X500Principal.getName(). Errors: ValueError if it is not a name."""
    tag, start, end = _element(name, 0)
    if tag != SEQUENCE:
        raise ValueError(f"a name begins with {tag:#x}")
    sets = (
        "+".join(_attribute(name, part) for part in _parts(name, each))
        for each in _parts(name, (start, end))
    )
    return ",".join(reversed(list(sets)))


def _attribute(data: bytes, span: tuple[int, int]) -> str:
    kind, value = _parts_with_tags(data, span)
    oid = _dotted(data[kind[1] : kind[2]])
    keyword = KEYWORDS.get(oid, oid)
    tag, start, end = value
    if keyword is oid or tag not in STRING_TAGS:
        return f"{keyword}=#{data[kind[2] : end].hex()}"
    # Java reads all kinds of strings as UTF-8, including BMPString and T61String.
    return f"{keyword}={_escaped(data[start:end].decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    text = "".join(f"\\{char}" if char in ESCAPED else char for char in text).replace("\0", "\\00")
    middle = text.strip(BLANKS)
    lead = len(text) - len(text.lstrip(BLANKS)) if middle else len(text)
    tail = text[lead + len(middle) :]
    return (
        "".join(f"\\{char}" for char in text[:lead])
        + middle
        + "".join(f"\\{char}" for char in tail)
    )


def _dotted(body: bytes) -> str:
    numbers = [0]
    for byte in body:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _parts(data: bytes, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    for _, start, end in _parts_with_tags(data, span):
        yield start, end


def _parts_with_tags(data: bytes, span: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    position, end = span
    while position < end:
        part = _element(data, position)
        yield part
        position = part[2]


def _element(data: bytes, position: int) -> tuple[int, int, int]:
    """Tag, start and end of the content of the DER element at a position. Errors: ValueError."""
    try:
        tag, length = data[position], data[position + 1]
    except IndexError:
        raise ValueError("a DER element is cut off") from None
    start = position + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    if start + length > len(data):
        raise ValueError("a DER element is longer than what contains it")
    return tag, start, start + length
