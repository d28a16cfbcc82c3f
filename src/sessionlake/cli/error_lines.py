"""A command's error as its user reads it: the lines, and the exit code."""

from contextlib import suppress

from sessionlake.cli.failures import explain, is_users
from sessionlake.config.file import ConfigFile
from sessionlake.config.problems import InvalidConfigError
from sessionlake.errors import ConfigError, ExitCode, SessionlakeError, SourceError
from sessionlake.extras import require_versions


def error_lines(error: Exception, config: str | None) -> tuple[list[str], int]:
    """Return an error's lines and its exit code; `config` is the file that the command was given, if it was given one."""
    if isinstance(error, ImportError):
        error = _of_versions(error)
    if isinstance(error, InvalidConfigError):
        return [str(problem) for problem in error.problems], error.exit_code
    if isinstance(error, ConfigError | SourceError) and config is not None:
        return [with_place(str(error), config)], error.exit_code
    if isinstance(error, SessionlakeError):
        return [str(error)], error.exit_code
    return [explain(error)], ExitCode.USER if is_users(error) else ExitCode.FAILED


def _of_versions(error: ImportError) -> Exception:
    """Return the error about the packages' versions, if that is why an import failed."""
    try:
        require_versions()
        require_versions(spark=True)
    except SessionlakeError as wrong:
        return wrong
    return error


def with_place(line: str, config: str) -> str:
    """Return a line about a key of a config with the file and the line that the key stands in, if it does."""
    with suppress(ConfigError):
        return ConfigFile.read(config).placed(line)
    return line
