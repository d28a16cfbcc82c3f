"""`sessionlake.check`: all possible checks of a pipeline before it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessionlake.config.file import ConfigFile
from sessionlake.config.load import Config, config_of
from sessionlake.config.problems import Gathered, InvalidConfigError, Problem, problems_of
from sessionlake.errors import MissingJavaError, SessionlakeError
from sessionlake.extras import lacking, require_versions
from sessionlake.jars.java import check_java
from sessionlake.preflight.needs import OF_CHECK, OF_STREAM, Needs

SPARK = "spark"
"""The extra of commands that start Spark."""


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    problems: tuple[Problem, ...] = ()
    """Problems to mend before the pipeline can run, in the order of the config."""
    warnings: tuple[Problem, ...] = ()
    """Settings that are allowed, but probably not meant."""
    summary: Mapping[str, str] = field(default_factory=dict)
    """The pipeline's plan in words; empty if there are problems."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "ok": self.ok,
            "errors": [problem.fields() for problem in self.problems],
            "warnings": [warning.fields() for warning in self.warnings],
            "summary": dict(self.summary),
        }


def check(config: Config | str | Path) -> Checked:
    """Return all problems and warnings of a pipeline, or a summary of it if there are no problems. Starts no JVM.

    If a config's path is given, problems have their line in it. The first rows of each source are tried (`preflight.sample`):
    users' classes are imported, and called with them.
    """
    file = None
    try:
        if isinstance(config, Config):
            loaded = config
        else:
            file = ConfigFile.read(config)
            loaded = config_of(file)
    except SessionlakeError as error:
        return Checked(tuple(_with_texts(problems_of(error), file)))
    if packages := misfits():
        return Checked(tuple(packages))
    checked, here = check_loaded(loaded, file), machine()
    problems = (*here.problems, *checked.problems)
    return Checked(problems, (*checked.warnings, *here.warnings), {} if problems else checked.summary)


def _with_texts(problems: list[Problem], file: ConfigFile | None) -> list[Problem]:
    """Return problems of a config, its aggregates and its SQL, as far as they do not depend on the rest of it."""
    if file is None:
        return problems
    from sessionlake.preflight.texts import text_problems  # noqa: PLC0415 (as below)

    gathered = Gathered()
    gathered.add(*problems)
    for problem in file.located(text_problems(file.merged())):
        gathered.add_other(problem)
    return sorted(gathered.problems, key=lambda problem: problem.line or 0)


def check_loaded(config: Config, file: ConfigFile | None) -> Checked:
    """Return `check`'s result for a config that is right by itself, on a machine without `misfits`; without the results of `machine`."""
    # Imported here, not above: problems of the config itself are reported without loading the modules of Spark.
    from sessionlake.preflight.checks import last_known_batch, problems_of_pipeline  # noqa: PLC0415
    from sessionlake.preflight.places import little_room  # noqa: PLC0415
    from sessionlake.preflight.sample import Tried, try_rows  # noqa: PLC0415
    from sessionlake.preflight.sinks import sink_problems  # noqa: PLC0415
    from sessionlake.preflight.sources import sources_without_spark  # noqa: PLC0415
    from sessionlake.preflight.summary import summary_of  # noqa: PLC0415

    sources = sources_without_spark(config)
    of_pipeline = problems_of_pipeline(config, OF_CHECK, sources)
    tried = Tried() if of_pipeline else try_rows(config, sources)
    problems = [*of_pipeline, *sink_problems(config), *tried.problems]
    warnings = [*map(Problem.of, config.warnings()), *little_room(config), *tried.warnings]
    if file is not None:
        problems, warnings = file.located(problems), file.located(warnings)
    if problems:
        return Checked(tuple(problems), tuple(warnings))
    # Only a grace that is not written depends on the tables.
    last = None if config.section.grace_told() is None else last_known_batch(config)
    return Checked((), tuple(warnings), {**summary_of(config, last), **tried.told})


def misfits() -> list[Problem]:
    """Return the problems of installed packages' versions. With such a problem nothing else is checked."""
    gathered = Gathered()
    for extra in ("", SPARK):
        if lacking(extra) is None:
            with gathered.one():
                require_versions(extra)
    return gathered.problems


def machine() -> Checked:
    """Return the problems of this machine's Java, and warnings about what is missing: `run` needs it, a check does not."""
    problems, missing = Gathered(), [lacking(SPARK)]
    with problems.one():
        try:
            check_java()
        except MissingJavaError as error:
            missing.append(str(error))
    warnings = (Problem(None, f"`sessionlake run` will need more: {told}") for told in missing if told is not None)
    return Checked(tuple(problems.problems), tuple(warnings))


def require_ready(config: Config, file: str | Path | None, needs: Needs = OF_STREAM) -> None:
    """Raise InvalidConfigError, with all problems, if a command can't do its work on a pipeline; `file` is its config, if any."""
    from sessionlake.preflight.checks import problems_of_pipeline  # noqa: PLC0415 (as above)

    problems = problems_of_pipeline(config, needs)
    if problems:
        raise InvalidConfigError(problems if file is None else ConfigFile.read(file).located(problems))
