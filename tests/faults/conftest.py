"""Fixtures of the fault tests: a plant of processes that is gone after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.processes import Plant, wait_until

MakePlant = Callable[..., Plant]


@pytest.fixture
def make_plant(tmp_path: Path) -> Iterator[MakePlant]:
    """Makes a plant: a master, and brokers with ids from 1."""
    plants: list[Plant] = []

    def make(*master_sets: str, brokers: int = 1, broker_sets: tuple[str, ...] = ()) -> Plant:
        plant = Plant(tmp_path, *master_sets)
        plants.append(plant)
        plant.start_master()
        for broker_id in range(1, brokers + 1):
            plant.launch_broker(broker_id, *broker_sets)
        for broker_id in range(1, brokers + 1):
            plant.serves(broker_id)
            wait_until(lambda broker_id=broker_id: plant.ready(broker_id), 10, "registered")
        return plant

    yield make
    for plant in plants:
        plant.close()
