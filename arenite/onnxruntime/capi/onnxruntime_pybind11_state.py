"""The exceptions that programs catch, by ONNX Runtime's names; all are AreniteErrors too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arenite import errors


class Fail(errors.AreniteError, RuntimeError):
    """A run, or the making of a session, failed."""


class InvalidArgument(errors.InvalidArgument):
    """Inputs or outputs that the model does not have, or of other types or shapes."""


class NoSuchFile(errors.FileMissing):
    """There is no such model."""


class InvalidProtobuf(errors.InvalidFile):
    """What was given is no ONNX model."""


class InvalidGraph(errors.InvalidFile):
    """A model that breaks a rule of ONNX."""


class Refused(errors.NotSupported):
    """A model that can't be run here, with the reason."""


NotImplemented = Refused  # noqa: A001 - ONNX Runtime's word


class RuntimeException(errors.RunFailed):
    """A run failed."""


class EPFail(Fail):
    """Never raised: there is one provider."""


class NoModel(Fail):
    """Never raised: a session has a model from the beginning."""


class ModelLoaded(Fail):
    """Never raised: a session has its model from the beginning."""


class EngineError(Fail):
    """Never raised: there is no other engine."""


class NotFound(Fail):
    """Never raised: what is missing is an argument that is wrong, or a file."""


class ModelLoadCanceled(Fail):
    """Never raised: nothing cancels a load."""


class ModelRequiresCompilation(Fail):
    """Never raised: every model is compiled."""


@contextmanager
def translated() -> Iterator[None]:
    """Inside, errors become those that programs written for ONNX Runtime catch."""
    try:
        yield
    except (MemoryError, Fail, InvalidArgument):
        raise
    except errors.FileMissing as error:
        raise NoSuchFile(str(error)) from error
    except errors.InvalidFile as error:
        kind = InvalidProtobuf if "no ONNX file" in str(error) else InvalidGraph
        raise kind(str(error)) from error
    except (errors.NotSupported, errors.NotCompiled) as error:
        raise Refused(str(error)) from error
    except (
        errors.BoundsError,
        errors.InvalidArgument,
        errors.ShapeMismatch,
        errors.TypeMismatch,
    ) as error:
        raise InvalidArgument(str(error)) from error
    except errors.RunFailed as error:
        raise RuntimeException(str(error)) from error
    except errors.AreniteError as error:
        raise Fail(str(error)) from error
