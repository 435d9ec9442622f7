"""The OpenAPI description of the HTTP API as Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

Description = Mapping[str, Any]
_METHODS = ("get", "put", "post", "patch", "delete")
_REFERENCE = re.compile(r"#/components/schemas/([\w.-]+)")


def operations(description: Description) -> str:
    """A section for each tag: its operations, and the models that no other tag has. Then those of several tags."""
    tags: dict[str, list[tuple[str, str]]] = {}
    for path, methods in description["paths"].items():
        for method in _METHODS:
            if method in methods:
                tags.setdefault((methods[method].get("tags") or ["other"])[0], []).append((path, method))
    models = {
        tag: _models([description["paths"][path][method] for path, method in found], description)
        for tag, found in tags.items()
    }
    common = {name for name, count in Counter(name for names in models.values() for name in names).items() if count > 1}
    parts = []
    for tag, found in tags.items():
        parts.append(f"## {tag.capitalize()}")
        parts += [_operation(path, method, description["paths"][path][method], description) for path, method in found]
        parts += _schemas(models[tag] - common, description)
    return "\n\n".join([*parts, "## Common models", *_schemas(common, description)])


def _models(operations: Sequence[Description], description: Description) -> set[str]:
    """Names of the models that these refer to, also by way of others."""
    found: set[str] = set()
    new = _referred(operations)
    while new:
        found |= new
        new = {name for one in new for name in _referred(description["components"]["schemas"][one])} - found
    return found


def _referred(part: Any) -> set[str]:
    return set(_REFERENCE.findall(json.dumps(part)))


def _operation(path: str, method: str, operation: Description, description: Description) -> str:
    parts = [
        f"### {operation['summary']} {{ #{operation['operationId']} }}",
        f"```text\n{method.upper()} {path}\n```",
        str(operation.get("description", "")),
    ]
    if operation.get("x-roles"):
        parts.append("Roles: " + ", ".join(f"`{role}`" for role in operation["x-roles"]) + ".")
    if operation.get("parameters"):
        parts.append(table(["parameter", "in", "type", ""], map(_parameter, operation["parameters"])))
    if "requestBody" in operation:
        parts += _contents("Body", operation["requestBody"]["content"], description)
    parts.append(table(["status", ""], _responses(operation)))
    for status, response in operation["responses"].items():
        if status.startswith("2") and response.get("content"):
            parts += _contents(f"Response {status}", response["content"], description)
    return "\n\n".join(part for part in parts if part)


def _parameter(parameter: Description) -> list[str]:
    required = "**required** " if parameter.get("required") and parameter["in"] != "path" else ""
    return [
        f"`{parameter['name']}`", parameter["in"], _type(parameter["schema"]),
        required + parameter.get("description", ""),
    ]  # fmt: skip


def _responses(operation: Description) -> Iterator[list[str]]:
    for status, response in operation["responses"].items():
        yield [status, response["description"]]


def _contents(title: str, content: Description, description: Description) -> Iterator[str]:
    for media, one in content.items():
        yield f"{title}, `{media}`: {_type(one.get('schema', {}))}"
        example = _example(one, description)
        if example is not None:
            text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
            yield f"```{'text' if isinstance(example, str) else 'json'}\n{text.rstrip()}\n```"


def _example(content: Description, description: Description) -> Any:
    """The first one: of the content itself, of its examples, or of its schema."""
    if "example" in content:
        return content["example"]
    for named in content.get("examples", {}).values():
        return named["value"]
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = description["components"]["schemas"][_name(schema["$ref"])]
    return next(iter(schema.get("examples", ())), None)


def _schemas(names: Collection[str], description: Description) -> Iterator[str]:
    """Each of these models with its fields, in the order of the description."""
    for name, schema in description["components"]["schemas"].items():
        if name not in names:
            continue
        required = schema.get("required", ())
        rows = [
            [f"`{field}`", _type(own), ("**required** " if field in required else "") + own.get("description", "")]
            for field, own in schema.get("properties", {}).items()
        ]
        head = f"### {name} {{ #model-{name.lower()} }}\n\n{schema.get('description', '')}"
        yield head + ("\n\n" + table(["field", "type", ""], rows) if rows else f"\n\n{_type(schema)}")


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _type(schema: Description) -> str:
    """What a value looks like, in words; models link to their section."""
    if "$ref" in schema:
        name = _name(schema["$ref"])
        return f"[{name}](#model-{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key] if one.get("type") != "null"))
    kind = str(schema.get("type", "any"))
    return f"list of {_type(schema.get('items', {}))}" if kind == "array" else kind


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
