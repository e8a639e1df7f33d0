"""Keeps the settings in values.schema.json those of src/default.toml; `--update` writes them."""

import json
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULTS = ROOT / "src/default.toml"
SCHEMA = ROOT / "helm/mcpproxy/values.schema.json"

# What the chart sets itself, and what may only come from a Secret.
CHARTS_OWN = {"server.listen", "server.admin_listen"}
SECRET = {
    "auth.bootstrap_key",
    "console.client_secret",
    "database.url",
    "database.direct_url",
    "search.embeddings_api_key",
    "secrets.master_key",
    "sessions.key",
}


def of(value):
    """The schema of a setting whose default is `value`."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case float():
            return {"type": "number", "minimum": 0, "maximum": 1}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array", "items": {"type": "string"}}
        case dict():
            return {"type": "object"}
    raise TypeError(f"a setting of a new type: {value!r}")


def settings():
    """The schema of `config`: sections, and in each the settings that values may have."""
    sections = {}
    for section, entries in tomllib.loads(DEFAULTS.read_text()).items():
        if not isinstance(entries, dict):
            continue  # data_dir: pods have none
        allowed = {
            key: of(value)
            for key, value in entries.items()
            if f"{section}.{key}" not in CHARTS_OWN | SECRET
        }
        if allowed:
            sections[section] = {"type": "object", "additionalProperties": False, "properties": allowed}
    return {"type": "object", "additionalProperties": False, "properties": sections}


def main():
    text = SCHEMA.read_text()
    schema = json.loads(text)
    schema["properties"]["config"] = settings()
    wanted = json.dumps(schema, indent=2) + "\n"
    if "--update" in sys.argv[1:]:
        SCHEMA.write_text(wanted)
    elif text != wanted:
        sys.exit(f"{SCHEMA} does not have the settings of {DEFAULTS}: run tests/helm/check.sh --update")


main()
