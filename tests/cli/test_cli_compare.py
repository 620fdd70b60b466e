def test_compilers_need_a_script_and_a_gpu(run_main, tmp_path, monkeypatch):
    status, _, err = run_main("compare", "--compilers", "nowhere.py")
    assert status == 2
    assert "nowhere.py: no such file" in err
    (tmp_path / "script.py").write_text("")
    monkeypatch.setattr("tkdebug.compat.upstream.installed.installed_triton", lambda: None)
    status, _, err = run_main("compare", "--compilers", str(tmp_path / "script.py"))
    assert status == 2
    assert "--compilers: both launch on a GPU, and there is none here" in err
