"""How clients are dealt to the devices of a run."""

import torch

from paperlib.federated.replicas import dealt


def test_the_largest_clients_come_first_each_to_the_device_with_the_fewest_samples():
    sizes = torch.tensor([10, 70, 0, 40, 30, 20])
    assert dealt([0, 1, 3, 4, 5], sizes, 2) == {1: 0, 3: 1, 4: 1, 5: 0, 0: 1}


def test_no_device_has_more_than_the_others_and_one_client():
    sizes = torch.randint(1, 1000, (60,), generator=torch.Generator().manual_seed(0))
    for devices in (1, 2, 3, 8):
        owner = dealt(range(60), sizes, devices)
        loads = [sum(int(sizes[k]) for k, i in owner.items() if i == device) for device in range(devices)]
        assert sorted(owner) == list(range(60)) and max(loads) - min(loads) <= int(sizes.max())
