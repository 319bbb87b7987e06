"""Exceptions as plain data, and back: of a kind that the reader knows, or of a new one that has only its name."""

from __future__ import annotations

import builtins
from typing import Any

from mlsyslab.comm import errors

from .places import raised_at
from .wire import text_of

#: exceptions that a text makes, by name: Python's and the library's
MAKERS = {name: cls for name, cls in vars(builtins).items()
          if isinstance(cls, type) and issubclass(cls, Exception) and not issubclass(cls, (UnicodeError, ExceptionGroup))}
MAKERS |= {name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, errors.CommError)}


class Forbidden(Exception):
    """The exercise asks to write what was called instead, or the sandbox keeps it out."""


MAKERS["Forbidden"] = Forbidden
PLAIN = (str, int, float, bool, type(None))


def described(error: BaseException) -> list[Any]:
    """[its kinds, the nearest first; arguments; text; where]."""
    kinds = [cls.__name__ for cls in type(error).__mro__[:-2]]
    ours = type(error) in MAKERS.values() and isinstance(error, errors.CommError)
    given = error.__reduce__()[1] if ours else error.args
    plain = ours or all(type(arg) in PLAIN for arg in given)
    try:
        text = str(error)
    except Exception:
        text = text_of(error)
    return [kinds, list(given) if plain else [text], text[:20_000], raised_at(error.__traceback__)]


def rebuilt(told: list[Any]) -> Exception:
    """The exception that `described` tells of."""
    kinds, args, text, _ = told
    kinds = [str(kind) for kind in kinds]
    maker = next((MAKERS[kind] for kind in kinds if kind in MAKERS), Exception)
    name = kinds[0] if kinds and kinds[0].isidentifier() else "Exception"
    try:
        if maker.__name__ == name:
            return maker(*args)
        if issubclass(maker, errors.CommError):
            return type(name, (errors.CommError,), {})(str(text))
        return type(name, (maker,), {})(*args)
    except Exception:
        return RuntimeError(f"{name}: {text}")
