"""The OpenAPI description of the HTTP API as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Description = Mapping[str, Any]
_METHODS = ("get", "put", "post", "patch", "delete")


def operations(description: Description) -> str:
    """A section for each tag, and one for each operation within it."""
    found: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or ["other"])[0]
                found.setdefault(tag, []).append(_operation(path, method, methods[method], description))
    parts = [f"## {tag.capitalize()}\n\n" + "\n\n".join(each) for tag, each in found.items()]
    return "\n\n".join([*parts, _schemas(description)])


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
            parts += _contents(f"Answer {status}", response["content"], description)
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


def _schemas(description: Description) -> str:
    """The models, each with its fields."""
    parts = ["## Models"]
    for name, schema in description["components"]["schemas"].items():
        required = schema.get("required", ())
        rows = [
            [f"`{field}`", _type(own), ("**required** " if field in required else "") + own.get("description", "")]
            for field, own in schema.get("properties", {}).items()
        ]
        head = f"### {name} {{ #model-{name.lower()} }}\n\n{schema.get('description', '')}"
        parts.append(head + ("\n\n" + table(["field", "type", ""], rows) if rows else f"\n\n{_type(schema)}"))
    return "\n\n".join(parts)


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
