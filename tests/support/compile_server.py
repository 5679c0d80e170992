"""Compiles kernels in a process of its own: one in which Triton interprets cannot compile.

Requests and answers are lines of JSON on the standard streams. A request names a shipped module, or holds a spec's
text or a module's source, and says what `launches` is to be asked for; the answer holds the facts of every launch, or
an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Compiler:
    """The client: starts the process at the first request."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.folder = tempfile.TemporaryDirectory(prefix="tqgen-triton-")

    def facts(self, **request: Any) -> list[dict[str, Any]]:
        """The facts of every launch that the request asks for."""
        if self.process is None:
            environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
            environment["TRITON_CACHE_DIR"] = self.folder.name
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
            command = [sys.executable, __file__]
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the compiling process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["facts"]

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
        self.folder.cleanup()


def _answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    import importlib

    import torch

    from tqgen import emit, verify
    from tqgen.inspect import TARGETS, compiled, launches
    from tqgen.layout.resolve import resolve
    from tqgen.lower import lower
    from tqgen.spec import parse_spec

    if "module" in request:
        module = importlib.import_module(f"generated.{request.pop('module')}")
    elif "source" in request:
        module = verify.load_module("compiled", request.pop("source"))
    else:
        plan = lower(resolve(parse_spec(request.pop("text"))), "compiled.yaml")
        module = verify.load_module(plan.name, emit.draft(plan))
    target = TARGETS[request.pop("target")]
    request["dtype"] = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[request["dtype"]]
    request["launchers"] = tuple(request["launchers"])
    return [compiled(launch, target).to_json() for launch in launches(module, target, **request)]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # whatever a compiler prints is no answer
        for line in sys.stdin:
            try:
                with contextlib.redirect_stdout(nowhere):
                    answer = {"facts": _answer(json.loads(line))}
            except Exception as error:  # a kernel that does not compile is what tests look for
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
