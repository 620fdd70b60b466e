import pytest
import torch

from tkdebug import testing
from tkdebug.errors import TkError, UnsupportedError, UsageError
from tkdebug.knobs import scope
from tkdebug.runtime.device.driver import has_real_gpu


def sweep(**changes):
    settings = dict(
        x_names=["size"], x_vals=[4, 8], line_arg="provider", line_vals=["a", "b"],
        line_names=["A", "B"], plot_name="sweep", args={"extra": 1}, ylabel="GB/s",
    )  # fmt: skip
    return testing.Benchmark(**{**settings, **changes})


def measure(size, provider, extra):
    return size + (0.5 if provider == "b" else 0) * extra


def test_do_bench_calls_and_returns_milliseconds():
    calls = []
    got = testing.do_bench(lambda: calls.append(1), warmup=0, rep=1)
    assert got > 0
    assert len(calls) > 2


@pytest.mark.parametrize(("quantiles", "count"), [([0.5, 0.2, 0.8], 3), ([0.5], None)])
def test_do_bench_quantiles(quantiles, count):
    got = testing.do_bench(lambda: None, warmup=0, rep=0, quantiles=quantiles)
    assert (len(got) if count else None) == count


def test_do_bench_all_and_bad_mode():
    assert isinstance(testing.do_bench(lambda: None, rep=0, return_mode="all"), list)
    with pytest.raises(UsageError, match="return_mode: got 'avg'"):
        testing.do_bench(lambda: None, return_mode="avg")


def test_do_bench_warns_once_where_kernels_are_interpreted(capsys):
    testing._warn_once.cache_clear()
    for mode, warnings in (("native", 0), ("interpret", 1), ("interpret", 0)):
        with scope(mode=mode, quick=True):
            testing.do_bench(lambda: None)
        assert capsys.readouterr().err.count("say nothing about a GPU's") == warnings


def test_quantiles_interpolate():
    assert testing._quantile([4.0, 1.0, 2.0, 3.0], [0, 0.5, 1]) == [1.0, 2.5, 4.0]
    with pytest.raises(UsageError, match="quantiles"):
        testing._quantile([1.0], [2])


def test_quick_runs_once():
    calls = []
    with scope(quick=True):
        got = testing.do_bench(lambda: calls.append(1), quantiles=[0.5, 0.2, 0.8])
        testing.do_bench_cudagraph(lambda: calls.append(1))
    assert len(calls) == 2
    assert len(got) == 3


def test_do_bench_forgets_gradients():
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    testing.do_bench(lambda: None, rep=0, grad_to_none=[x])
    assert x.grad is None


def test_perf_report_prints_a_table(capsys):
    result = testing.perf_report(sweep())(measure).run(print_data=True)
    assert result is None
    assert capsys.readouterr().out == (
        "sweep:\n"
        "   size  A (GB/s)  B (GB/s)\n"
        "0   4.0       4.0       4.5\n"
        "1   8.0       8.0       8.5\n"
    )


def test_perf_report_quick_takes_first_x(capsys):
    with scope(quick=True):
        testing.perf_report(sweep())(measure).run(print_data=True)
    assert "8.5" not in capsys.readouterr().out


def test_perf_report_writes_csv_and_index(tmp_path):
    report = testing.perf_report([sweep(), sweep(plot_name="other")])(measure)
    report.run(save_path=str(tmp_path / "out"), save_precision=2)
    text = (tmp_path / "out" / "sweep.csv").read_text()
    assert text == "size,A (GB/s),B (GB/s)\n4,4,4.50\n8,8,8.50\n"
    assert "other.png" in (tmp_path / "out" / "results.html").read_text()


def test_perf_report_spread_and_several_x(capsys):
    def spread(M, N, provider, extra):
        return M * N, 1.0, 2.0

    bench = sweep(x_names=["M", "N"], x_vals=[(2, 3), 4])
    testing.perf_report(bench)(spread).run(print_data=True)
    assert "16.0" in capsys.readouterr().out


def test_perf_report_wrong_x_count():
    bench = sweep(x_names=["M", "N"], x_vals=[(1, 2, 3)])
    with pytest.raises(UsageError, match="expected 2 values for M, N"):
        testing.perf_report(bench)(measure).run()


def test_perf_report_difference_column(capsys):
    bench = sweep(line_vals=["b"], line_names=["B"])
    testing.perf_report(bench)(measure).run(print_data=True, diff_col=True)
    assert "Diff" in capsys.readouterr().out


def test_perf_report_returns_dataframe_or_says_what_is_missing():
    report = testing.perf_report(sweep())(measure)
    try:
        import pandas
    except ImportError:
        with pytest.raises(UsageError, match="pandas"):
            report.run(return_df=True)
    else:
        assert isinstance(report.run(return_df=True), pandas.DataFrame)


def test_table_cells_like_pandas():
    from tkdebug.runtime.benchmark.perf_report import _cells

    assert _cells([1.5, 2.25]) == ["1.50", "2.25"]
    assert _cells([1 / 3, None]) == ["0.333333", "NaN"]
    assert _cells(["a", None]) == ["a", "None"]


def test_assert_close():
    testing.assert_close([1.0, 2.0], torch.tensor([1.0, 2.005]))
    testing.assert_close(torch.ones(2, dtype=torch.bfloat16), torch.ones(2))
    testing.assert_close(1.0, 1.001)
    testing.assert_close([1.0, 2.0], [1.1, 2.2], rtol=lambda dtype: 0.2, atol=0.0)
    with pytest.raises(AssertionError):
        testing.assert_close([1.0, 2.0], [1.0, 2.2])
    with pytest.raises(AssertionError, match=r"here 1\.0 is not close to 2\.0"):
        testing.assert_close(1.0, 2.0, err_msg="here")


@pytest.mark.skipif(has_real_gpu(), reason="asks what is answered without a GPU")
def test_peaks_without_a_gpu_are_an_h200s():
    assert testing.get_dram_gbps() == pytest.approx(4814.304)
    clock_rate = 1980000
    fp16 = testing.get_max_tensorcore_tflops(torch.float16, clock_rate)
    assert testing.get_max_tensorcore_tflops(torch.int8, clock_rate) == 2 * fp16
    assert testing.get_max_tensorcore_tflops(torch.float32, clock_rate) == fp16 / 2
    assert testing.get_max_simd_tflops(torch.float32, clock_rate) < fp16
    for peak in (testing.get_max_tensorcore_tflops, testing.get_max_simd_tflops):
        with pytest.raises(UnsupportedError, match="float64"):
            peak(torch.float64, clock_rate)


def test_nvsmi_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TkError, match="nvidia-smi is not on this machine"):
        testing.nvsmi(["clocks.current.sm"])


def test_cuda_memcheck_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="cuda_memcheck"):
        testing.cuda_memcheck(x=1)
