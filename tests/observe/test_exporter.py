"""The exporter's first answer is one that it has looked for."""

import threading
from pathlib import Path

from prometheus_client import generate_latest

from sessionlake.errors import NoBatchesError
from sessionlake.observe.exporter import Exporter
from sessionlake.observe.readings import registry_of
from tests.support import make_config


def test_a_scrape_before_the_first_look_waits_for_it(tmp_path: Path) -> None:
    exporter = Exporter(make_config(tmp_path))
    answers: list[str] = []
    scrape = threading.Thread(target=lambda: answers.append(generate_latest(registry_of(exporter)).decode()))
    scrape.start()
    scrape.join(0.3)
    assert scrape.is_alive()
    assert isinstance(exporter.refresh(), NoBatchesError)
    scrape.join(60)
    assert [line.split()[-1] for line in answers[0].splitlines() if not line.startswith("#")] == ["0.0"] * 2
