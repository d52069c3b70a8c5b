"""Check a handler's arguments and its result against its signature.

Arguments are checked when a job is enqueued and again when it runs. The result is checked before it is recorded.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.errors import ValidationError
from holdfast.worker.enqueue import OPTIONS

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_UNKNOWN = re.compile(r"Object contains unknown field `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[\w |]+)`, got `(?P<given>\w+)` - at `\$\.(?P<place>[^`]+)`")
_JSON_ONLY_NAMES = {"array", "object"}
"""Names that msgspec uses for several Python types. Its own message is kept for them."""
_PYTHON_NAMES = {"null": "None", "array": "list", "object": "dict"}


class UnreadableArgs(ValidationError):
    """The stored arguments of a job do not match its handler's parameters."""


class _NotCheckable(Exception):
    """JSON values cannot be checked against the annotation."""


class Signature:
    """The parameters of a handler's function besides its context, and its return annotation."""

    def __init__(self, function: Callable[..., Any], context_type: type) -> None:
        self.context_type: type | None = None
        """The context class of the annotation; None if there is no such annotation."""
        self._name = getattr(function, "__qualname__", repr(function))
        hints = _type_hints(function, self._name)
        self._returns = hints.get("return", Any)
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0], hints, context_type)
        if self.takes_context:
            self.context_type = hints.get(parameters[0].name)
        rest = parameters[1:] if self.takes_context else parameters
        self._takes_kwargs = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in rest)
        named = [p for p in rest if p.kind is not inspect.Parameter.VAR_KEYWORD]
        for parameter in named:
            if _names_context(hints.get(parameter.name), context_type):
                raise ValidationError(
                    f"{self._name}: {parameter.name} is annotated as a context: the context is the first parameter,"
                    " annotated Context or AsyncContext alone",
                    field="handler",
                )
            if parameter.kind not in _NAMED_KINDS:
                raise ValidationError(
                    f"{self._name}: arguments of a job have names; {parameter} takes them by position", field="handler"
                )
        self._names = [p.name for p in named]
        self._struct = msgspec.defstruct(
            f"Args_{self._name.replace('.', '_').replace('<', '').replace('>', '')}",
            [_field(p, hints) for p in named],
            kw_only=True,
            forbid_unknown_fields=not self._takes_kwargs,
        )
        try:
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=_decode_unknown_type)
        except TypeError as error:
            raise ValidationError(
                f"{self._name}: {_undecodable_annotation(named, hints)}: {_one_line(error)}", field="handler"
            ) from None

    def bind_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a call, all by name."""
        if not args:
            return kwargs
        names = self._names[: len(args)]
        if len(args) > len(self._names):
            raise ValidationError(f"{self._name} takes {len(self._names)} arguments, not {len(args)}", field="args")
        if repeated := [name for name in names if name in kwargs]:
            raise ValidationError(f"{self._name}: {repeated[0]} is given twice", field="args")
        return {**dict(zip(names, args, strict=True)), **kwargs}

    def admit(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as plain JSON values. Raise a ValidationError that names an argument that does not fit."""
        try:
            checked = msgspec.convert(dict(given), self._struct, dec_hook=_decode_unknown_type)
            plain = msgspec.to_builtins(checked, enc_hook=_encode_unknown_type)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ValidationError(self._explain(error), field="args") from None
        if self._takes_kwargs:
            plain.update({name: value for name, value in given.items() if name not in self._names})
        return dict(plain)

    def read(self, body: bytes) -> dict[str, Any]:
        """Return a job's arguments, decoded to the types of the function's annotations. Raise UnreadableArgs if that fails."""
        if not self._names and not self._takes_kwargs and body == b"{}":
            return {}
        try:
            decoded = self._decoder.decode(body)
            extra = msgspec.json.decode(body) if self._takes_kwargs else None
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise UnreadableArgs(self._explain(error), field="args") from None
        names = self._names
        values = {name: getattr(decoded, name) for name in names}
        if extra is not None:
            values.update({name: value for name, value in extra.items() if name not in names})
        return values

    def _explain(self, error: Exception) -> str:
        """Return what is wrong with the arguments. Use Python's names of types where msgspec's names allow it."""
        text = _one_line(error)
        if found := _UNKNOWN.fullmatch(text):
            has = f"it has: {', '.join(self._names)}" if self._names else "it has none"
            hint = f". Options of the job go before: app.options({found[1]}=…).enqueue(…)" if found[1] in OPTIONS else ""
            return f"{self._name} has no parameter {found[1]!r}; {has}{hint}"
        if found := _MISSING.fullmatch(text):
            return f"{self._name} needs the argument {found[1]!r}"
        if (found := _WRONG_TYPE.fullmatch(text)) and not _JSON_ONLY_NAMES & {*found["wanted"].split(" | ")}:
            wanted = found["wanted"].replace(" | ", " or ").replace("null", "None")
            return f"{self._name}: {found['place']} must be {wanted}, not {_PYTHON_NAMES.get(found['given'], found['given'])}"
        return f"{self._name}: {text}"

    def result_check(self) -> Callable[[Any], None] | None:
        """Return a function that raises ValidationError if a plain result does not match the return annotation.

        Return None if there is no annotation, or if results cannot be checked against it.
        """
        annotation = self._returns
        if annotation is Any:
            return None
        try:
            msgspec.json.Decoder(annotation, dec_hook=_check_unknown_type)
        except TypeError:
            return None
        convert = msgspec.convert

        def check(result: Any) -> None:
            try:
                convert(result, annotation, dec_hook=_check_unknown_type)
            except _NotCheckable:
                pass
            except (msgspec.ValidationError, TypeError, ValueError) as error:
                name = getattr(annotation, "__name__", None) if isinstance(annotation, type) else None
                message = f"{self._name}: the result does not fit its annotation {name or annotation}: {_one_line(error)}"
                raise ValidationError(message, field="result") from None

        return check


def to_plain_result(result: Any) -> Any:
    """Return a handler's result as plain JSON values. Structs, dataclasses, models, dates and the like are converted."""
    if result is None or type(result) in (str, int, float, bool):
        return result
    try:
        return msgspec.to_builtins(result, enc_hook=_encode_unknown_type)
    except (TypeError, ValueError) as error:
        raise ValidationError(f"the result cannot be kept as JSON: {error}", field="result") from None


def _encode_unknown_type(value: Any) -> Any:
    """Return a pydantic model as plain values. Raise TypeError for every other type."""
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _decode_unknown_type(wanted: type, value: Any) -> Any:
    """Return the value as a type that msgspec does not know: a pydantic model, or the class that it has already."""
    if _is_model(wanted):
        return value if isinstance(value, wanted) else wanted.model_validate(value)  # type: ignore[attr-defined]
    if isinstance(value, wanted):
        return value
    raise TypeError(f"a {wanted.__name__} cannot be made from JSON")


def _check_unknown_type(wanted: type, value: Any) -> Any:
    """Check a value against a pydantic model. msgspec calls this for generic aliases too, which are not classes."""
    if inspect.isclass(wanted) and _is_model(wanted):
        return wanted.model_validate(value)  # type: ignore[attr-defined]
    raise _NotCheckable


def _is_model(kind: type) -> bool:
    """Return whether the type is a pydantic model. Holdfast never imports pydantic itself."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


class BatchSignature(Signature):
    """The signature of a batch handler. It takes a list of jobs, whose arguments are not checked."""

    def __init__(self, function: Callable[..., Any], context_type: type) -> None:
        self._name = getattr(function, "__qualname__", repr(function))
        parameters = list(inspect.signature(function).parameters.values())
        if len(parameters) != 1 or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise ValidationError(f"{self._name}: a batch handler takes one parameter, the list of jobs", field="handler")
        self.context_type = context_type
        self.takes_context = False
        self._names = []

    def bind_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if args:
            raise ValidationError(f"the arguments of {self._name} have names: it takes them as job.args", field="args")
        return kwargs

    def admit(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    def read(self, body: bytes) -> dict[str, Any]:
        return {}


def _type_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ValidationError(f"{name}: an annotation cannot be resolved: {error}", field="handler") from None


def _is_context(first: inspect.Parameter, hints: Mapping[str, Any], context_type: type) -> bool:
    annotation = hints.get(first.name)
    if annotation is None:
        return first.name == "job"
    return isinstance(annotation, type) and issubclass(annotation, context_type)


def _names_context(hint: Any, context_type: type) -> bool:
    """Return whether an annotation is a context or contains one, as `Context | None` does."""
    if isinstance(hint, type) and issubclass(hint, context_type):
        return True
    return any(_names_context(part, context_type) for part in get_args(hint))


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    annotation = hints.get(parameter.name, Any)
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, annotation)
    default = parameter.default
    if isinstance(default, list | dict | set):
        return (parameter.name, annotation, msgspec.field(default_factory=default.copy))
    return (parameter.name, annotation, default)


def _undecodable_annotation(parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any]) -> str:
    """Name the annotation that cannot be decoded from JSON. If each one can, they only conflict with each other."""
    for parameter in parameters:
        try:
            msgspec.json.Decoder(hints.get(parameter.name, Any), dec_hook=_decode_unknown_type)
        except TypeError:
            return f"the annotation of {parameter.name}"
    return "its annotations"


def _one_line(error: Exception) -> str:
    """Return the error's message in one line of at most 500 characters. Those of pydantic have several."""
    return str(error).replace("\n", " ")[:500]
