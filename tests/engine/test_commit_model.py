"""The protocol of a batch's commit holds in all states of a model, and each mutant of the model is found broken."""

import pytest

from tests.engine.commit_model import MUTANTS, SMALL, Model, search


@pytest.mark.parametrize("name", SMALL)
def test_protocol_holds_in_all_states(name: str) -> None:
    found = search(Model(**SMALL[name]))
    assert (found.wrong, found.path) == (None, [])
    assert found.states > 1000


@pytest.mark.parametrize("step", MUTANTS)
def test_protocol_without_a_step_is_broken(step: str) -> None:
    found = search(Model(**MUTANTS[step], without=step))
    assert found.wrong is not None


def test_way_to_what_is_wrong_is_a_way_of_steps() -> None:
    model = Model(**MUTANTS["term"], without="term")
    state = model.first
    for name in search(model).path:
        state = next(new for what, new in model.steps(state) if what == name)
    assert model.wrong(state) is not None
