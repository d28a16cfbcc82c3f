"""A pipeline's TOML config, read in stages. Each error names the place, the key, the value and a valid value.

1. File: the text, in which each key has a place (`file`).
2. Defaults of the project (`ConfigFile.merged`).
3. Upstream: settings that follow from pipelines whose results are read (`read_upstream`).
4. Sections, each by itself (`structure`), then all together (`checks`).
5. Paths (`absolute`).
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from sessionlake.config.absolute import with_absolute_paths
from sessionlake.config.checks import checks_of
from sessionlake.config.config import Config
from sessionlake.config.file import ConfigFile, Raw
from sessionlake.config.implied import with_presets
from sessionlake.config.paths import is_remote, resolved
from sessionlake.config.problems import Gathered, InvalidConfigError, problems_of
from sessionlake.config.read_upstream import upstreams_in, with_events_of
from sessionlake.config.sections import OF_RESULTS
from sessionlake.config.structure import structured
from sessionlake.errors import SessionlakeError

__all__ = ["Config", "config_of", "load_config", "parse_config"]


def load_config(path: str | Path) -> Config:
    """Read and validate a pipeline's file, with the defaults of its project; InvalidConfigError, a line for each problem, if it has any."""
    return config_of(ConfigFile.read(path))


def config_of(file: ConfigFile) -> Config:
    """Return the config of a pipeline's file; InvalidConfigError has the place of each problem."""
    try:
        config = parse_config(file.merged(), file.directory)
    except SessionlakeError as error:
        raise InvalidConfigError(file.located(problems_of(error))) from error
    root = file.project_warehouse
    return config if root is None else config.model_copy(update={"project_warehouse": resolved(root, file.directory)})


def parse_config(raw: dict[str, Any], directory: Path) -> Config:
    """Validate a config's content; relative paths are resolved against `directory`. InvalidConfigError has all its problems."""
    found = Gathered()
    upstream = upstreams_in(raw, directory, found)
    raw = with_presets(with_events_of(raw, upstream))
    config, wrong = structured(raw, found)
    config = config.model_copy(update={"upstream": upstream})
    if not config.section.sides and config.event.key is None:
        config = config.model_copy(update={"section": config.section.without_key()})
    _check(config, raw, wrong, found)
    found.raise_any()
    return _following_at_once(with_absolute_paths(config, directory))


def _check(config: Config, raw: Raw, wrong: Collection[str], found: Gathered) -> None:
    """Add the problems between valid sections to `found`, except those of the stand-ins for `wrong` sections."""
    for check in checks_of(config, raw):
        problems = Gathered()
        with problems.one():
            check()
        for problem in problems.problems:
            if str(problem.key).partition(".")[0] not in wrong:
                found.add_other(problem)


def _following_at_once(config: Config) -> Config:
    """Return a config that reads nothing but results of other pipelines with a short trigger, unless it has one of its own.

    A look for news in tables on a disk costs little: two files of logs. In an object store each look is several requests, which are paid for.
    """
    reads_results = all(side.source.entry.is_pipeline for side in config.inputs.values())
    places = (config.pipeline.warehouse, *(one.warehouse for one in config.upstream.values()))
    if not reads_results or "trigger" in config.pipeline.model_fields_set or any(map(is_remote, places)):
        return config
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"trigger": OF_RESULTS})})
