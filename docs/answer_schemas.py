"""Makes docs/COMMAND.schema.json of commands whose JSON is no record: by the short forms below.

python docs/answer_schemas.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent
_TYPES = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "any": {},
    "object": {"type": "object"},
    "list": {"type": "array"},
}
_WHERE = {"file": "text?", "line": "integer?"}
_FRAME = {"file": "text", "line": "integer", "function": "text"}
_GRID = ["integer"]
_ERROR = {
    "kind": "text",
    "message": "text",
    **_WHERE,
    "got": "text?",
    "expected": "text?",
    "next": "text?",
}
_KIND = {
    "name": "text",
    "summary": "text",
    "severity": "text",
    "interpreted": "text",
    "on_a_gpu": "text",
    "text=": "text",
}
_OP = {"id": "integer", "name": "text", **_WHERE}
_CHANGE = {"kind": "text", "rule": "text", "detail": "text", "old": [_OP], "new": [_OP]}
_PASS = {
    "number": "integer",
    "name": "text",
    "time_ns": "integer",
    "before": "text",
    "after": "text",
    "ops": "integer",
    "known": "flag",
    "error": "text",
    "counts": {"*": "integer"},
    "changes": [_CHANGE],
    "gone_lines": [_WHERE],
    "layouts": "list",
    "diff=": "any",
}
_STEP = {
    "name": "text",
    "stage": "text",
    "changes": [_CHANGE],
    "lines": [{"line": "integer", "op": "integer?", "text": "text"}],
}
_PASSES = {
    "kernel": "text",
    "hash": "text",
    "variant": "text",
    "signature": "text",
    "options": "object",
    **_WHERE,
    "error": "text?",
    "note": "text",
    "passes=": [_PASS],
    "life=": {"file": "text", "line": "integer", "steps": [_STEP]},
}
_COUNTS = {
    "instructions": "integer",
    "inlined": "integer",
    "kinds": {"*": "integer"},
    "width_bits": {"*": {"*": "integer"}},
    "max_live_registers": "integer?",
    "spilled_values": "integer",
}
_INSTRUCTION = {
    "address": "integer",
    "text": "text",
    "kind": "text",
    "ptx_line": "integer?",
    "op_id": "integer?",
    "live_registers": "integer?",
}
_OP_OF_LINE = {
    "id": "integer?",
    "tile_name": "text?",
    "gpu_name": "text?",
    "column": "integer?",
    "origins": ["integer"],
    "chains": "list",
}
_LINES = {
    "name": "text",
    "hash": "text?",
    "variant": "text?",
    "signature": "text?",
    **_WHERE,
    "target": "text?",
    "instructions": "integer",
    "mapped": "integer",
    "mapped_percent": "number?",
    "totals=": _COUNTS,
    "lines=": [{**_WHERE, "source": "text?", **_COUNTS}],
    "unmapped=": "object?",
    "table=": "object",
    "chains=": "list",
    "ops=": [_OP_OF_LINE],
    "stages=": {"*": [{"line": "integer", "text": "text"}]},
    "sass=": [_INSTRUCTION],
}
_REMARK = {
    "rank": "integer",
    **_WHERE,
    "kernel": "text",
    "kind": "text",
    "message": "text",
    "predicted_gain": "number",
    "speedup": "number",
    "judged": "text?",
    "speedup_launched": "number",
    "speedup_filled": "number",
    "code": "text",
    "times": "text",
}
_LAUNCH_COST = {
    "kernel": "text",
    "kernel_hash": "text",
    "launch_id": "integer",
    "grid": _GRID,
    "target": "text",
    "machine": "text",
    "read_bytes": "integer",
    "written_bytes": "integer",
    "flops": "integer",
    "tensor_flops": "integer",
    "predicted_ns": "number",
    "grid_ns": "number",
    "roof_ns": "number",
    "bound": "text",
    "is_exact": "flag",
}
_RUN = {"script": "text", "mode": "text", "exit_status": "integer?"}
_KERNEL_CHANGE = {
    "kernel": "text",
    "before": "object?",
    "after": "object?",
    "mean_ratio": "number?",
    "min_ratio": "number?",
    "time": "object?",
    "code_before": "object?",
    "code_after": "object?",
}
_CHANGED_VALUE = {
    "kernel": "text",
    "name": "text",
    **_WHERE,
    "compared": "integer",
    "different": "integer",
    "largest": "any",
}
_FAULT = {"kind": "text", "kernel": "text", **_WHERE, "message": "text", "call_chain": [_FRAME]}
_SHARE = {**_WHERE, "cause": "text", "share": "number", "without": "number"}
_OUTPUT = {
    "name": "text",
    "elements": "integer",
    "error": "number?",
    "largest": "number?",
    "not_finite": "integer",
    "shares": [_SHARE],
    "explained": "number?",
    "reference": "object?",
}
_LINE_ERRORS = {
    "file": "text",
    "line": "integer",
    "text": "text",
    "local": "number?",
    "carried": "number?",
    "amplified": "number?",
    "exponents": "list?",
    "causes": [{"output": "text", "cause": "text", "share": "number?"}],
}
_FINDING = {"output": "text", **_WHERE, "cause": "text", "share": "number?", "detail": "text"}
_NUMERICS = {
    "kernel": "text",
    "launch": "integer",
    "grid": _GRID,
    "programs": "integer",
    "of": "integer",
    "outputs": [_OUTPUT],
    "lines": [_LINE_ERRORS],
    "findings": [_FINDING],
    "notes": ["text"],
    "seconds": "number",
}
_RANK = {
    "rank": "integer",
    "host": "text",
    "launches": "integer",
    "total_ns": "number",
    "ended": "flag",
}
_SPREAD = {
    "kernel": "text",
    "mean_ns": {"*": "number"},
    "launches": {"*": "integer"},
    "slowest_rank": "integer?",
    "spread": "number?",
    "skew_ns": "number?",
}
_SIZE = {"grid": _GRID, "elements": "integer", "statements": "integer", "lines": "integer"}
_FIGURE = {"rate": "number", "lowest": "number", "highest": "number", "repeats": "integer"}

# Of each document, what it has; "?": or null, "=" at a name: may be left out, "*": any name.
_VERIFY_FINDING = {
    "kind": "text",
    "message": "text",
    "is_wrong": "flag",
    "case": "object?",
    **_WHERE,
    "kernel": "text",
    "fault": "object?",
}
_COVERED = {
    "cases": "integer",
    "refused": "integer",
    "no_inputs": "integer",
    "elements": "integer",
    "launches": "integer",
    "kernels": ["text"],
    "ways": {"*": "integer"},
    "values": {"*": "integer"},
    "layouts": {"*": "integer"},
    "dtypes": {"*": "integer"},
    "left": "integer",
    "notes": ["text"],
}
ANSWERS: Mapping[str, Mapping[str, object]] = {
    "error": {"schema": 1, "error": _ERROR},
    "explain": {"schema": 1, "kinds": [_KIND]},
    "passes": {"schema": 1, "kernels": [_PASSES]},
    "lines": {"schema": 1, "kernels": [_LINES]},
    "advise": {"schema": 1, "remarks": [_REMARK], "launch_costs": [_LAUNCH_COST]},
    "compare": {
        "schema": 1,
        "before": _RUN,
        "after": _RUN,
        "kernels": [_KERNEL_CHANGE],
        "new_faults": [_FAULT],
        "gone_faults": [_FAULT],
        "kept_faults": "integer",
        "new_remarks": [_REMARK],
        "gone_remarks": [_REMARK],
        "watched_values": [_CHANGED_VALUE],
    },
    "numerics": {"schema": 1, "lines": [_FINDING], "kernels": [_NUMERICS]},
    "shards": {
        "schema": 1,
        "fails": "flag",
        "runs": [
            {
                "file": "text",
                "script": "text",
                "argv": ["text"],
                "mode": "text",
                "exit_status": "integer?",
                "launches": "integer",
            }
        ],
        "faults": [{**_FAULT, "count": "integer", "launches": "integer", "runs": ["text"]}],
    },
    "ranks": {"schema": 1, "ranks": [_RANK], "kernels": [_SPREAD]},
    "crash": {
        "schema": 1,
        "device": "text",
        "architecture": "text",
        "driver": "text?",
        "faults": [_FAULT],
    },
    "reproduce": {
        "schema": 1,
        "file": "text",
        "data_file": "text?",
        "lines": "integer",
        "kind": "text",
        "kernel": "text",
        "function": "text",
        "statement": "text",
        "of": {**_WHERE, "message": "text"},
        "from": _SIZE,
        "to": _SIZE,
        "kept": ["text"],
        "is_whole": "flag",
        "tried": "integer",
        "seconds": "number",
        "command": "text",
    },
    "verify": {
        "schema": 1,
        "verdict": "text",
        "why": "text",
        "file": "text",
        "function": "text",
        "reference": "text",
        "seed": "integer",
        "shard": "text",
        "case": "object?",
        "findings": [_VERIFY_FINDING],
        "covered": _COVERED,
        "tolerance": "text",
        "modes": ["text"],
        "seconds": "number",
        "replay": "text",
    },
    "ceilings": {"format": 1, "gpu": "text", "target": "text", "figures": {"*": _FIGURE}},
}


def text(name: str) -> str:
    """Return what the file of a document should have."""
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tkdebug: {name}, as JSON",
        **_schema_of(ANSWERS[name]),
    }
    return json.dumps(found, indent=1) + "\n"


def path(name: str) -> Path:
    """Return the file of a document."""
    return DOCS / f"{name}.schema.json"


def _schema_of(form: object) -> dict[str, object]:
    """Return the JSON Schema that a short form stands for."""
    if isinstance(form, int):
        return {"const": form}
    if isinstance(form, list):
        return {"type": "array", "items": _schema_of(form[0])}
    if isinstance(form, Mapping):
        if "*" in form:
            return {"type": "object", "additionalProperties": _schema_of(form["*"])}
        named = {key.rstrip("="): _schema_of(each) for key, each in form.items()}
        needed = [key for key in form if not key.endswith("=")]
        return {"type": "object", "properties": named, "required": needed}
    found: dict[str, object] = dict(_TYPES[str(form).rstrip("?")])
    return {"anyOf": [found, {"type": "null"}]} if str(form).endswith("?") else found


if __name__ == "__main__":
    for each in ANSWERS:
        path(each).write_text(text(each), encoding="utf-8")
