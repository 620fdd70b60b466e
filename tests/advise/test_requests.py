import numpy as np

from tkdebug.compiler.analysis.requests import requests_of
from tkdebug.compiler.layouts import blocked


def _tile(shape, held, lanes, warps, order):
    return blocked(held, lanes, warps, order, shape)


def _all(shape):
    return np.arange(int(np.prod(shape)), dtype=np.int64)


def test_a_row_of_floats_is_asked_for_in_full_lines():
    layout = _tile((512,), (4,), (32,), (4,), (0,))
    found = requests_of(layout, 4, (512,), 4, _all((512,)) * 4, _all((512,)))
    assert (found.count, found.sectors, found.needed, found.lines) == (4, 64, 64, 16)


def test_a_column_touches_a_sector_a_lane():
    layout = _tile((128,), (1,), (32,), (4,), (0,))
    found = requests_of(layout, 1, (128,), 4, _all((128,)) * 4096, _all((128,)))
    assert (found.count, found.sectors, found.needed, found.lines) == (4, 128, 16, 128)


def test_elements_that_are_masked_off_ask_for_nothing():
    layout = _tile((128,), (1,), (32,), (4,), (0,))
    some = np.arange(40, dtype=np.int64)
    found = requests_of(layout, 1, (128,), 4, some * 4, some)
    assert (found.count, found.sectors, found.distinct) == (2, 5, 5)


def test_an_address_that_all_lanes_share_is_one_sector():
    layout = _tile((64, 2), (1, 2), (32, 1), (2, 1), (1, 0))
    addresses = (_all((64, 2)) % 2) * 4
    found = requests_of(layout, 2, (64, 2), 4, addresses, _all((64, 2)))
    assert (found.count, found.sectors, found.needed, found.distinct) == (2, 2, 2, 1)


def test_addresses_of_an_execution_count_once():
    layout = _tile((64,), (1,), (32,), (2,), (0,))
    for places, count in ((_all((64,)) * 4, 64), (_all((64,)) * 0, 1), (_all((64,)) // 2 * 4, 32)):
        assert requests_of(layout, 1, (64,), 4, places, _all((64,))).addresses == count


def test_a_scalar_is_one_request():
    found = requests_of(None, 1, (), 8, np.array([4096]), np.array([0]))
    assert (found.count, found.sectors, found.needed) == (1, 1, 1)
