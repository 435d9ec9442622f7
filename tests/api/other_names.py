"""The public names beside Python: commands, HTTP, metrics, settings, keys and formats in Redis, log lines."""

from __future__ import annotations

import ast
import enum
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import typer
from pydantic import BaseModel

from streamdq.callback import CallbackSettings
from streamdq.cli.app import app
from streamdq.config import HttpSettings, Settings
from streamdq.errors import FORMAT
from streamdq.metrics import declared
from streamdq.store.history.rows import COLUMNS, FIELDS, SCHEMA_VERSION, Event
from streamdq_spark.questions import tables
from tests.docs.reader import ROOT

_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_VARIABLE = re.compile(r"""["'](STREAMDQ_[A-Z_]*[A-Z])["']""")
_LOGS = re.compile(rf"\blog\.(?:{'|'.join(_LEVELS)})\(")


# -- the command line


def commands() -> Iterator[str]:
    for line in _command(typer.main.get_command(app), "streamdq"):
        yield f"command {line}"


def _command(command: Any, path: str) -> Iterator[str]:
    if command.hidden:
        return
    yield path
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            yield f"{path} {_parameter(parameter)}"
    for name, one in getattr(command, "commands", {}).items():
        yield from _command(one, f"{path} {name}")


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = (parameter.metavar or parameter.name).upper()
    else:
        names = "/".join((*parameter.opts, *parameter.secondary_opts))
    annotation = parameter.type_descriptor.annotation
    choices = tuple(annotation) if isinstance(annotation, enum.EnumType) else get_args(annotation)
    kind = "|".join(str(getattr(one, "__name__", one)) for one in choices or (annotation,))
    default = parameter.default
    notes = [
        "" if getattr(parameter, "is_flag", False) else kind,
        "required" if parameter.required else "",
        "repeated" if getattr(parameter, "multiple", False) or parameter.nargs == -1 else "",
        f"= {default}" if default not in (None, False, "", ()) and not callable(default) else "",
        f"${parameter.envvar}" if parameter.envvar else "",
    ]
    return " ".join([names, *filter(None, notes)])


# -- HTTP


def http() -> Iterator[str]:
    """Of the description: operations with their parameters, and models with their fields."""
    found = importlib.import_module("streamdq.http").create_app("memory://unused", authentication="mine").openapi()
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield from _operation(f"http {method.upper()} {path}", operation)
    for name, schema in found["components"]["schemas"].items():
        yield from _model(f"http model {name}", schema)
    for kind, (status, _) in importlib.import_module("streamdq.http.problems").KINDS.items():
        yield f"http problem {kind} {status}"


def _operation(name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"{name}: {operation['operationId']}, for {','.join(sorted(operation.get('x-roles', ()))) or 'all'}"
    for one in operation.get("parameters", ()):
        yield f"{name} {one['in']} {one['name']}: {_schema(one['schema'])}{_needed(one.get('required'))}"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"{name} body {media}: {_schema(content.get('schema', {}))}"
    errors = []
    for status, response in operation["responses"].items():
        for media, content in response.get("content", {"": {}}).items():
            if media == "application/problem+json":
                errors.append(status)
            else:
                kind = f" {media}: {_schema(content.get('schema', {}))}" if media else ""
                yield f"{name} -> {status}{kind}"
    yield f"{name} fails with {' '.join(sorted(errors))}"


def _model(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        yield f"{name}: {_schema(schema)}"
    for field, one in schema.get("properties", {}).items():
        yield f"{name}.{field}: {_schema(one)}{_needed(field in schema.get('required', ()))}"


def _needed(required: object) -> str:
    return " required" if required else ""


def _schema(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(map(_schema, schema[key])))
    if "enum" in schema or "const" in schema:
        return " | ".join(repr(value) for value in schema.get("enum", [schema.get("const")]))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        kind = f"[{_schema(schema.get('items', {}))}]"
    limits = [f"{key}={schema[key]}" for key in ("minimum", "maximum", "maxLength", "maxItems") if key in schema]
    default = f" = {schema['default']!r}" if schema.get("default") is not None else ""
    return kind + (f" ({', '.join(limits)})" if limits else "") + default


# -- what operators configure and watch


def settings() -> Iterator[str]:
    models: list[type[Any]] = [Settings, HttpSettings, CallbackSettings]
    known = set()
    for model in models:
        for name, default in _settings(model):
            known.add(name)
            yield f"setting {name} = {default}"
    found = {name for path in _sources() for name in _VARIABLE.findall(path.read_text(encoding="utf-8"))}
    yield from (f"environment {name}" for name in found - known)


def _settings(model: type[Any]) -> Iterator[tuple[str, str]]:
    assert issubclass(model, BaseModel)
    for name, field in model.model_fields.items():
        yield f"{model.env_prefix}{name.upper()}", repr(field.get_default(call_default_factory=True))  # type: ignore[attr-defined]


def metrics() -> Iterator[str]:
    for one in declared.described():
        yield f"metric {one.name} {one.kind} {','.join(one.labels)}"


def logs() -> Iterator[str]:
    """Events of log lines, with the names of their fields."""
    for path in _sources():
        if _LOGS.search(text := path.read_text(encoding="utf-8")):
            yield from (line for node in ast.walk(ast.parse(text)) for line in _logged(node))


def _logged(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(ast.Attribute(ast.Name("log"), level), [ast.Constant(str(event)), *_], words) if level in _LEVELS:
            yield f"log {event!r}: {level}, {', '.join(word.arg or '…' for word in words) or 'no fields'}"


def _sources() -> Iterator[Any]:
    for folder in ("streamdq", "spark/streamdq_spark"):
        yield from sorted((ROOT / folder).rglob("*.py"))


# -- what Redis and dumps hold


def stored() -> Iterator[str]:
    """Keys and formats as docs/reference says, which other tests compare with the code, and the scripts' headers."""
    keys = (ROOT / "docs/reference/keys.md").read_text(encoding="utf-8")
    for name, kind in re.findall(r"^\| `(\{?NS[^`]*)` \| ([A-Z]+) \|", keys, re.MULTILINE):
        yield f"redis key {name} {kind}"
    yield f"redis format {FORMAT}"
    protocol = (ROOT / "docs/reference/protocol.md").read_text(encoding="utf-8")
    formats, clients = (protocol.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in _SECTIONS)
    for block in re.findall(r"^```\n(.*?)\n```", formats, re.MULTILINE | re.DOTALL):
        yield f"redis text {block}"
    for name in re.findall(r"^\| `(\w+)` \|", clients, re.MULTILINE):
        yield from _script(name)
    yield f"history row {' '.join(FIELDS)}"
    yield f"history schema {SCHEMA_VERSION}"
    yield from (f"history column {one.name} {one.type}{' or null' if one.nullable else ''}" for one in COLUMNS)
    yield from (f"history event {event}" for event in Event)
    for table in tables().values():
        yield from (f"analytics {table.name}.{name} {kind}" for name, kind in table.columns.items())


_SECTIONS = ("Formats", "Scripts that clients call")


def _script(name: str) -> Iterator[str]:
    header = (ROOT / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    for what, names in re.findall(r"^-- (keys[^:]*): (.+(?:\n--   .+)*)", header, re.MULTILINE):
        yield f"script {name} {what}: {re.sub(chr(10) + r'--' + r' +', ' ', names)}"
    yield f"script {name} arguments: {' '.join(re.findall(r'^-- ARGV.([^]]*)', header, re.MULTILINE))}"
