"""Long lists are filtered, sorted and cut."""

from __future__ import annotations

from server.console.listing import MAX_WORDS, PAGE_ROWS, Listing, listing, number_in

ROWS = [(f"topic-{number}", number if number % 2 else None) for number in range(250)]


def shown(**query: str) -> Listing:
    return listing(
        "/list",
        query,
        ROWS,
        {"name": lambda row: row[0], "size": lambda row: row[1]},
        text=lambda row: row[0],
        kept=("internal",),
    )


def test_list_is_cut_into_pages_whose_links_carry_its_fields_on() -> None:
    pages = shown(q="TOPIC 1", page="2", internal="1")
    assert (pages.total, pages.count, pages.number) == (133, 2, 2)
    assert (pages.first, pages.last) == (PAGE_ROWS + 1, 133)
    assert pages.link(1) == "/list?q=TOPIC+1&internal=1&page=1&sort=name"


def test_page_outside_the_list_is_its_nearest() -> None:
    assert shown(page="99").number == 3
    assert shown(page="-1").number == 1
    assert shown(page="x").number == 1
    assert (shown(q="nothing").first, shown(q="nothing").last) == (0, 0)


def test_unknown_values_come_last_in_both_directions() -> None:
    up, down = shown(sort="size", page="3"), shown(sort="size", desc="1", page="3")
    assert up.rows[-1][1] is None and down.rows[-1][1] is None
    assert shown(sort="size", desc="1").rows[0][1] == 249


def test_column_that_sorts_already_turns_round() -> None:
    assert shown().sorted_by("name") == "/list?sort=name&desc=1"
    assert shown(desc="1", sort="name").sorted_by("name") == "/list?sort=name"
    assert shown().sorted_by("size", True) == "/list?sort=size&desc=1"
    assert shown(sort="other").sort == "name"


def test_numbers_of_a_query_have_64_bits() -> None:
    assert number_in("12", 0) == 12
    assert number_in(str(1 << 63), -1) == -1
    assert number_in("9" * 5000, -1) == -1
    assert number_in(None, 7) == 7


def test_words_of_a_filter_have_a_bound() -> None:
    assert shown(q="topic " * MAX_WORDS + "nowhere").total == 250
    assert shown(q="topic " * (MAX_WORDS - 1) + "nowhere").total == 0
