"""What the official clients for Python share here: the steps, and the one line of JSON that is printed at the end.

A client is an asynchronous context manager `open(url, key, arguments)` that gives an object with

    about                              what the report begins with
    tools()                            every tool
    offers(wanted)                     prompts, resources and templates, with one of each
    call(name, arguments, on_progress) a result
    cancel(name, arguments)            a call that is taken back as soon as there is progress
    names(fresh), listen(tell)         see listen.py
    expire()                           waits until the server refuses the client's token, if it logged in (login.py)

A key that is a JSON object has the client log in instead.
"""

import asyncio
import json
import sys

from listen import listen, listening

TOTAL_S_MAX = 28
USAGE = "usage: python CLIENT.py URL KEY STEPS_JSON|- [MODE]"


def _dump(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _describe(error):
    """An error of the protocol has a code; of a group of errors the first one counts."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    told = getattr(error, "error", None)
    if told is not None:
        return {"code": told.code, "message": told.message, "data": told.data}
    return {"code": None, "message": f"{type(error).__name__}: {error}", "data": None}


async def _run_step(client, step, progress):
    if step.get("list"):
        return {"tools": [_dump(tool) for tool in await client.tools()]}
    if step.get("expire"):
        return await client.expire()
    if step.get("listen"):
        return await listen(client, step["listen"])
    if step.get("offers"):
        return {name: _dump(got) for name, got in (await client.offers(step["offers"])).items()}
    name, arguments = step["call"]["name"], step["call"]["arguments"]
    if step.get("cancel"):
        await client.cancel(name, arguments)
        raise RuntimeError("cancelled")

    async def on_progress(done, total, message):
        progress.append({"progress": done, "total": total, "message": message})

    result = await client.call(name, arguments, on_progress if step.get("progress") else None)
    return _dump(result)


async def _run(open_client, url, key, steps, arguments, report):
    async with open_client(url, key, arguments) as client:
        report.update(client.about)
        for step in steps:
            try:
                report["steps"].append({"ok": await _run_step(client, step, report["progress"])})
            except Exception as error:
                report["steps"].append({"error": _describe(error)})


def main(open_client):
    """Reads the command line, connects, runs the steps and prints the report. Ends the process: 0 once connected, 1
    if connecting failed, 2 on wrong usage."""
    if len(sys.argv) < 4:
        sys.exit(USAGE)
    url, key, text, *arguments = sys.argv[1:]
    steps = json.loads(sys.stdin.read() if text == "-" else text)
    report = {"steps": [], "progress": []}
    run = _run(open_client, url, key, steps, arguments, report)
    try:
        asyncio.run(asyncio.wait_for(run, TOTAL_S_MAX + listening(steps)))
    except Exception as error:
        report["error"] = _describe(error)
    print(json.dumps(report))
    sys.exit(0 if "protocolVersion" in report else 1)
