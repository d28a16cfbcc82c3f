"""Policies of the section [emit] as a config writes them."""

from typing import Annotated, Any

from pydantic import AfterValidator

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.windowing.policies import BATCH


def policy(*words: str) -> Any:
    """Return the type of a policy: one of some words, or a period."""

    def checked(text: str) -> str:
        if text in words:
            return text
        try:
            period = parse_duration(text)
        except ConfigError as error:
            raise ValueError(
                f"{text!r} is no policy; write {' or '.join(map(repr, words))}, or a period as in '10 seconds'"
            ) from error
        if period == 0:
            raise ValueError(f"{text!r} is no period; write {BATCH!r} to send changes with each batch")
        return text

    return Annotated[str, AfterValidator(checked)]
