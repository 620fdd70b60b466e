import weakref

import pytest
import torch

from tkdebug.runtime.arguments.known_tensors import known_tensors

X = torch.zeros(4, 6)


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(4, 7),
        torch.zeros(6, 4),
        torch.zeros(6, 4).t(),
        X.view(24),
        X[:, None],
        torch.zeros(8, 6)[::2],
        torch.zeros(4, 6, dtype=torch.float64),
        5,
        None,
    ],
)
def test_only_tensors_of_these_shapes_and_strides_are_known(other):
    is_known = known_tensors((X, X[0]))
    assert is_known(torch.ones(4, 6), torch.ones(6))
    assert not is_known(other, X[0])
    assert not is_known(X, other)


def test_a_tensor_is_unknown_once_it_was_changed_in_place():
    x = torch.zeros(2, 3)
    is_known = known_tensors((x,))
    assert is_known(x)
    assert not is_known(x.t_())
    assert is_known(x.t_())
    assert not is_known(x.resize_(2, 2))


def test_no_tensor_is_kept():
    x = torch.zeros(5)
    is_known, alive = known_tensors((x,)), weakref.ref(x)
    del x
    assert alive() is None
    assert is_known(torch.zeros(5))


def test_odd_extents_are_told_apart():
    scalar, empty, wide = torch.zeros(()), torch.zeros(0, 3), torch.zeros(1).expand(1 << 33)
    is_known = known_tensors((scalar, empty, wide))
    assert is_known(scalar, empty, wide)
    assert not is_known(scalar, torch.zeros(0, 4), wide)
    assert not is_known(scalar, empty, torch.zeros(1).expand(1 << 34))


def test_other_things_than_tensors_are_never_known():
    assert known_tensors((X, 3)) is None
    assert known_tensors((torch.nn.Parameter(X),))(torch.nn.Parameter(X))


def test_a_torch_that_cannot_tell_is_done_without(monkeypatch):
    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    assert known_tensors((X,)) is None
