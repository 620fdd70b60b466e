import pytest

from tkdebug.instrument.analyses.kernel_names import activity_name, demangled, short_name

FILL = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE"
    "St5arrayIPcLm1EEEEviT0_T1_"
)


def test_name_of_cpp_is_taken_apart():
    if demangled(FILL) == FILL:
        pytest.skip("no C++ library on this machine")
    assert short_name(FILL).startswith("at::native::vectorized_elementwise_kernel<4, at::native::")
    assert "(" not in short_name(FILL)


@pytest.mark.parametrize("name", ["add_kernel", "nvjet_sm90_hsh_64x8", "_Zgarbage", ""])
def test_other_names_stay(name):
    assert demangled(name) == short_name(name) == name


def test_copies_say_which_way():
    assert activity_name("memcpy", "HtoD") == "memcpy HtoD"
    assert activity_name("memset", "memset") == "memset"
