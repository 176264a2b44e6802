"""`bench.predict` on a tiny model: everybody answers, and the same."""

import json
import subprocess
import sys

from bench.predict import report
from bench.predict_task import LABELS, PredictTask
from tests.house.repository import ROOT


def test_quick_run_of_all_who_answer() -> None:
    command = [sys.executable, "-m", "bench.predict", "--quick", "--json", "--rounds", "2"]
    found = subprocess.run(
        [*command, "--tokens", "8", "--threads", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    labels, text = said["labels"], said["text"]
    assert labels["same_label"] is True
    assert labels["seconds"].keys() == {"ours", "ours, adapted", "transformers"}
    assert text["tokens_per_second"].keys() >= labels["seconds"].keys()
    for table in (labels["seconds"], text["tokens_per_second"]):
        assert table["ours"]["times_ours"] == 1
        for figures in table.values():
            assert len(figures["rounds"]) == 2
            assert min(figures["rounds"]) > 0


def test_the_report_counts_tokens_and_compares_medians() -> None:
    task = PredictTask("", None, 1, [], [], [], 9, [])
    scores = [float(place == 3) for place in range(len(LABELS))]
    prediction = {"predictions": [{"label": LABELS[3]}]}
    stopped = {"usage": {"completion_tokens": 9}, "finish_reason": "stop"}
    found = report(
        task,
        {
            "labels": {
                "ours": [{"seconds": s, **prediction} for s in (1.0, 2.0, 9.0)],
                "transformers": [{"seconds": s, "found": scores} for s in (4.0, 3.0, 5.0)],
            },
            "text": {
                "ours": [{"seconds": 2.0, **stopped}],
                "transformers": [{"seconds": 4.0, "found": [5] * 8}],
            },
        },
    )
    assert found["labels"]["same_label"] is True
    assert found["labels"]["seconds"]["transformers"]["times_ours"] == 2
    speeds = found["text"]["tokens_per_second"]
    assert (speeds["ours"]["median"], speeds["transformers"]["median"]) == (4, 2)
