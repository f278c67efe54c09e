"""Numbers, times and texts in the form of the pages. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

#: The sign for a value that is unknown or does not exist.
NONE = "\N{EN DASH}"
THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
COUNT_UNITS = ("", "k", "M", "G", "T")
DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def grouped(count: int | None) -> Markup:
    """An exact integer, in groups of three digits.

    Shape: the space between groups is one of the style sheet, so that the digits alone are copied.
    """
    if count is None or count < 0:
        return Markup(NONE)
    first, *others = f"{count:,}".split(",")
    return Markup(first + "".join(f'<span class="g">{each}</span>' for each in others))


def size(bytes_count: float | None) -> str:
    """Bytes, in the largest unit in which the number is at least 1."""
    if bytes_count is None or bytes_count < 0:
        return NONE
    return _scaled(bytes_count, 1024, BYTE_UNITS)


def rate(per_second: float | None, unit: str = "") -> str:
    """A rate per second; `unit` is "B" for bytes."""
    if per_second is None:
        return NONE
    scaled = (
        _scaled(per_second, 1024, BYTE_UNITS)
        if unit == "B"
        else _scaled(per_second, 1000, COUNT_UNITS)
    )
    return f"{scaled}/s"


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    index = 0
    while value >= step - 0.5 and index < len(units) - 1:
        value /= step
        index += 1
    digits = 0 if value >= 99.95 or value == int(value) else 1
    unit = units[index]
    return f"{value:.{digits}f}{THIN_SPACE}{unit}" if unit else f"{value:.{digits}f}"


def duration(ms: float | None) -> str:
    """A length of time, in its two largest units."""
    if ms is None or ms < 0:
        return NONE
    if ms < 1_000:
        return f"{ms:.0f}{THIN_SPACE}ms"
    for index, (length, unit) in enumerate(DURATIONS):
        if ms >= length:
            text = f"{int(ms // length)}{THIN_SPACE}{unit}"
            if index + 1 < len(DURATIONS):
                below, below_unit = DURATIONS[index + 1]
                if rest := int(ms % length // below):
                    text += f" {rest}{THIN_SPACE}{below_unit}"
            return text
    raise AssertionError


def moment(timestamp_ms: int | None) -> str:
    """A time in UTC, to the millisecond. Shape: a time outside the calendar's range is shown as a number."""
    if timestamp_ms is None or timestamp_ms < 0:
        return NONE
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms}{THIN_SPACE}ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def iso(timestamp_ms: int) -> str:
    """A time for the attribute `datetime`; empty for none."""
    text = moment(timestamp_ms)
    return f"{text.replace(' ', 'T')}Z" if text[:1].isdigit() and "-" in text else ""


def percent(share: float | None) -> str:
    """A fraction as a percentage."""
    return NONE if share is None else f"{share * 100:.0f}{THIN_SPACE}%"


def shortened(text: str, most: int) -> str:
    """The beginning of a text, with an ellipsis if it is cut."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def plural(count: int, one: str, many: str = "") -> Markup:
    """A count with its noun."""
    return Markup("{} {}").format(grouped(count), one if count == 1 else many or one + "s")
