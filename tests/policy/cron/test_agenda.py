"""The agenda always returns the earliest entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskmill.policy.cron.decisions import Agenda

names = st.sampled_from("abcdefgh")


@given(st.lists(st.one_of(st.tuples(names, st.one_of(st.none(), st.integers(0, 50))), st.integers(0, 50)), max_size=80))
def test_it_is_a_mapping_that_knows_its_earliest(acts: list[tuple[str, int | None] | int]) -> None:
    agenda = Agenda()
    plain: dict[str, int] = {}
    for act in acts:
        if isinstance(act, int):
            taken = agenda.take_due(act)
            assert [plain[name] for name in taken] == sorted(plain[name] for name in taken)
            assert set(taken) == {name for name, at in plain.items() if at <= act}
            plain = {name: at for name, at in plain.items() if at > act}
        else:
            name, moment = act
            agenda.put(name, moment)
            plain.pop(name, None)
            if moment is not None:
                plain[name] = moment
        assert agenda.earliest() == min(plain.values(), default=None)
        assert len(agenda) == len(plain)


def test_replaced_entries_do_not_pile_up() -> None:
    agenda = Agenda()
    for turn in range(10_000):
        agenda.put(f"task {turn % 10}", turn)
    assert len(agenda._heap) <= 2 * 10 + 64
    assert agenda.earliest() == 9_990


def test_no_name_is_taken_twice() -> None:
    agenda = Agenda()
    agenda.put("a", 5)
    agenda.put("a", 3)
    agenda.put("a", 5)
    assert agenda.take_due(10) == ["a"]
    assert agenda.take_due(10) == []


class Counted(int):
    """A moment that counts how often it is compared."""

    compared = 0

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= other

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < other

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) != other

    __hash__ = int.__hash__


def test_a_look_at_ten_thousand_of_which_none_is_due_compares_a_handful() -> None:
    agenda = Agenda()
    for number in range(10_000):
        agenda.put(f"task {number}", Counted(10_000 - number))
    agenda.earliest()
    Counted.compared = 0
    for _ in range(100):
        assert agenda.take_due(0) == []
        assert agenda.earliest() == 1
    assert 0 < Counted.compared <= 100 * 8
