"""Loggers of other systems, whose packages are no part of the tests' environment."""

import pytest

from unitk.training.reporting.sinks import choose_loggers, open_sinks


def test_a_run_of_mlflow_is_one_run_however_often_it_is_resumed(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")
    (tmp_path / "run").mkdir()
    for step in (1, 2):
        [_, sink] = open_sinks(tmp_path / "run", choose_loggers(["mlflow"]), step - 1)
        sink.write("train", step, {"train/loss": 3.0 - step, "tokens/s": 9.0})
        sink.close()
    client = mlflow.MlflowClient()
    [run] = client.search_runs(["0"])
    assert run.info.run_name == "run" and run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in history] == [(1, 2.0), (2, 1.0)]


def test_trackio_has_the_values(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    (tmp_path / "run").mkdir()
    [_, sink] = open_sinks(tmp_path / "run", choose_loggers(["trackio"]), 0)
    sink.write("train", 1, {"train/loss": 2.0})
    sink.close()
    assert [*(tmp_path / "trackio").rglob("unitk*.db")]
