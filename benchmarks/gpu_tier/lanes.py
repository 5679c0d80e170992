"""Jobs in processes side by side: compiling is most of the work, and one core compiles one kernel at a time."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("work.py")
FOUND = 86  # exit status where compute-sanitizer has found an error
GRACE = 15.0  # seconds after the deadline in which a job may end

Job = dict[str, Any]
Result = dict[str, Any]


def run(jobs: list[Job], lanes: int, deadline: float, interpret: bool, tool_path: str | None) -> list[Result]:
    """The result of every job, in order: its records, and what went wrong with its process.

    Jobs that have not begun at `deadline`, of `time.monotonic`, are reported as not run.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(jobs)):
        waiting.put(number)
    results: list[Result] = [{"job": job, "records": [], "not_run": "the time was up"} for job in jobs]

    def work() -> None:
        lane = _Lane(interpret, tool_path)
        while time.monotonic() < deadline:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                break
            results[number] = {"job": jobs[number], **lane.do(jobs[number], deadline)}
        lane.close()

    threads = [threading.Thread(target=work) for _ in range(min(lanes, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class _Lane:
    """One process after the other; a new one where the last has ended."""

    def __init__(self, interpret: bool, tool_path: str | None) -> None:
        self.tool_path = tool_path
        self.environment = {**os.environ, "TRITON_INTERPRET": "1" if interpret else "0"}
        self.environment |= {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process: subprocess.Popen[str] | None = None

    def do(self, job: Job, deadline: float) -> Result:
        if "tool" in job:
            return self._sanitized(job, deadline)
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER)],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(max(1.0, deadline + GRACE - time.monotonic()), process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        timer.cancel()
        if line:
            answer: Result = json.loads(line)
            if "CUDA" in str(answer.get("failed", "")) + str([one.get("error") for one in answer["records"]]):
                self.close()
            return answer
        self.process = None
        status = process.wait()
        if time.monotonic() > deadline:
            return {"records": [], "not_run": "the time was up while it ran"}
        return {"records": [], "failed": f"the process ended with status {status}"}

    def _sanitized(self, job: Job, deadline: float) -> Result:
        """The job under compute-sanitizer, in a process that ends with it."""
        assert self.tool_path is not None
        # every tensor has its own bounds
        environment = {**self.environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        command = [self.tool_path, "--tool", job["tool"], "--error-exitcode", str(FOUND), sys.executable, str(WORKER)]
        limit = max(1.0, deadline + GRACE - time.monotonic())
        try:
            ran = subprocess.run(
                command, env=environment, input=json.dumps(job) + "\n", capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"records": [], "not_run": "the time was up while it ran"}
        if job["kind"] == "canary":
            found = ran.returncode == FOUND
            return {"records": [], **({} if found else {"failed": f"{job['tool']} does not see a write past the end"})}
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("=========")]
        answers = [line for line in ran.stdout.splitlines() if line.startswith('{"records"')]
        result: Result = json.loads(answers[0]) if answers else {"records": [], "failed": "no answer"}
        if ran.returncode:
            result["failed"] = f"{job['tool']}: status {ran.returncode}: {' '.join(said)[:1500]}"
        return {**result, "said": said[-2:]}

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def sanitizer() -> str | None:
    """The path of compute-sanitizer, or None where there is none."""
    toolkits = [str(path / "bin") for path in sorted(Path("/usr/local").glob("cuda*"))]
    found = shutil.which("compute-sanitizer")
    return found or shutil.which("compute-sanitizer", path=os.pathsep.join(toolkits))
