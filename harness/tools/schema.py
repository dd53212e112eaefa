"""From a function's signature to a JSON Schema, and from a model's arguments to a checked call."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from harness.errors import ToolError
from harness.messages import JsonObject


class ArgumentsModel(BaseModel):
    """The arguments of one tool. Unknown names are an error: the model must learn what the tool takes."""

    model_config = ConfigDict(extra="forbid")


def arguments_model(function: Callable[..., Any], skip: frozenset[type] = frozenset()) -> type[ArgumentsModel]:
    """The model for a function's parameters; those annotated with a type in `skip` are not the model's business."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {function.__name__}: parameter {name!r} must be an ordinary or keyword-only one")
        if name not in hints:
            raise TypeError(f"tool {function.__name__}: parameter {name!r} needs a type annotation")
        if hints[name] in skip:
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], Field(default=default))
    return create_model(function.__name__, __base__=ArgumentsModel, **fields)


@functools.cache  # made anew it would cost more than all else in a turn: 0.4 ms for each tool
def json_schema(model: type[BaseModel]) -> JsonObject:
    """The schema as a model server takes it: an object with properties, without titles."""
    schema: dict[str, Any] = _without_titles(model.model_json_schema())
    schema.pop("description", None)
    return {"type": "object", "properties": {}, **schema}


def checked(model: type[BaseModel], arguments: JsonObject) -> dict[str, Any]:
    """The arguments as Python values; ToolError that says per parameter what is wrong."""
    try:
        value = model.model_validate(arguments)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, p['loc'])) or 'arguments'}: {p['msg']}" for p in error.errors()]
        raise ToolError("Invalid arguments. " + "; ".join(problems)) from error
    return {name: getattr(value, name) for name in type(value).model_fields}


def _without_titles(node: Any) -> Any:
    match node:
        case {**items}:
            # A property may itself be called "title": only the string beside a type is the generated one.
            return {k: _without_titles(v) for k, v in items.items() if not (k == "title" and isinstance(v, str))}
        case [*items]:
            return [_without_titles(item) for item in items]
        case _:
            return node
