"""Runs over Flower with a SuperLink and two SuperNodes on the loopback have the bits of `paperlib.run`."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from paperlib import Experiment, run
from paperlib.paths import ROOT

pytest.importorskip("flwr", reason="flwr is no package of this project: make flower")

BIN = Path(sys.executable).parent
SETTING = Experiment(
    dataset="digits", train_size=200, test_size=60, model="mlp", width=0.1, partition="dirichlet", alpha=0.4, clients=4,
    sampled=2, rounds=2, batch_size=16, lr=0.05, momentum=0.9, seed=6,
)  # fmt: skip
# What is remembered: by nobody (the first three), by the server (two), by the clients too (two; one client takes part
# in both rounds), by clients who drop what is old, and by BatchNorm. tests/flower/test_methods.py has all methods.
CHANGES = {
    "fedavg": {},
    "fedprox": {"method": "fedprox"},
    "gc_fed": {"method": "gc_fed"},
    "fedavgm": {"method": "fedavgm"},
    "fedacg": {"method": "fedacg"},
    "feddyn": {"method": "feddyn"},
    "scaffold": {"method": "scaffold", "momentum_buffer": "keep"},
    "fedgps_cf": {"method": "fedgps_cf", "method_options": {"surrogate_images": 4}, "rounds": 3},
    "fedavg with BatchNorm": {"model": "cnn2"},
}


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def wait_until_open(port):
    deadline = time.monotonic() + 120
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Starts the three processes; gives a function that plays an experiment and returns its folder."""
    home = tmp_path_factory.mktemp("flower")
    port, nodes = free_port(), 2
    environment = os.environ | {
        "FLWR_HOME": str(home / "home"), "FLWR_TELEMETRY_ENABLED": "0", "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    (home / "home").mkdir()
    (home / "home" / "config.toml").write_text(f'[superlink.loopback]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    link = f"flower-superlink --insecure --disable-runtime-dependency-installation --host 127.0.0.1 --port {port}"
    commands = [link] + [
        f"flower-supernode --insecure --superlink 127.0.0.1:{port} --host 127.0.0.1 --port {free_port()}"
        for _ in range(nodes)
    ]
    processes = []
    for i, command in enumerate(commands):
        log = (home / f"log-{i}.txt").open("w")
        processes.append(subprocess.Popen([str(BIN / command.split()[0]), *command.split()[1:]], env=environment,
                                          stdout=log, stderr=subprocess.STDOUT, cwd=home))  # fmt: skip
        wait_until_open(port)  # of the link, which starts first

    def play(e):
        folder = home / e.digest
        config = home / f"{e.digest}.toml"
        values = {"experiment": e.to_json(), "nodes": nodes, "folder": str(folder)}
        config.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items()))
        subprocess.run(
            [BIN / "flwr", "run", ROOT / "flower", "loopback", "--run-config", config],
            env=environment, check=True, timeout=300, cwd=home,
        )  # fmt: skip
        deadline = time.monotonic() + 600  # every visit of a client is a process of its own
        while not (folder / "history.jsonl").exists():
            if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
                pytest.fail("\n".join(path.read_text()[-4000:] for path in sorted(home.glob("log-*.txt"))))
            time.sleep(0.5)
        return folder

    yield play
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(20)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_run_over_two_nodes_has_the_bits_of_a_run_here(federation, tmp_path, changes):
    from paperlib.files import read_tensors

    e = SETTING.replace(**changes)
    folder = federation(e)
    expected = run(e, store=tmp_path)
    theta = read_tensors(folder / "parameters.safetensors", None, "cpu")["theta"]
    assert torch.equal(theta, expected.parameters)
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [row["test_accuracy"] for row in rows] == expected.history.test_accuracy.tolist()
    assert [row["test_loss"] for row in rows] == expected.history.test_loss.tolist()
